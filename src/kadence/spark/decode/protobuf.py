"""format protobuf: ptars decodes batches into Arrow; which record is bad it says one by one.

Descriptors come from the registry or from a file that ``protoc --include_imports --descriptor_set_out`` wrote.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kadence.errors import ConfigError, MissingDependencyError
from kadence.spark.decode.fitting import fit, fits
from kadence.spark.decode.isolation import BadRecordError, Decoded, WholeRefusedError, decode_isolating
from kadence.spark.decode.registry import Registered

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Messages", "ProtobufFormat"]


class Messages:
    """The messages of some files of definitions.

    Attributes:
        last: the name of the file that the others were given for.
    """

    def __init__(self, files: Iterable[Any]) -> None:
        from google.protobuf import descriptor_pool

        self._pool = descriptor_pool.DescriptorPool()
        self.last = ""
        try:
            for file in files:
                self._add_well_known(file)
                self._pool.Add(file)
                self.last = file.name
        except (TypeError, KeyError) as problem:
            raise ConfigError(f"the Protobuf definitions do not fit together: {problem}") from None

    @classmethod
    def of_file(cls, option: str, name: str) -> Messages:
        """From a descriptor set.

        Raises:
            ConfigError: no such file, or something else in it.
        """
        descriptors = _protobuf()
        try:
            content = Path(name).read_bytes()
        except OSError as problem:
            raise ConfigError(f"option {option}: {name!r} cannot be read ({problem.strerror})") from None
        try:
            return cls(descriptors.FileDescriptorSet.FromString(content).file)
        except _decode_error():
            raise ConfigError(
                f"option {option}: {name!r} is no descriptor set; protoc --include_imports "
                "--descriptor_set_out writes one"
            ) from None

    @classmethod
    def of_registered(cls, registered: Registered) -> Messages:
        """From a registry.

        Raises:
            ConfigError: what it gave is no compiled definition.
        """
        descriptors = _protobuf()
        files: dict[str, Any] = {}

        def add(name: str, found: Registered) -> None:
            for item, reference in found.references:
                add(item, reference)
            try:
                file = descriptors.FileDescriptorProto.FromString(base64.b64decode(found.text, validate=True))
            except (binascii.Error, _decode_error()):
                raise ConfigError(
                    "the schema registry gives no compiled Protobuf definitions (format=serialized); name a descriptor "
                    "set with the option value.schema"
                ) from None
            file.name = name
            files[name] = file

        add("default", registered)
        return cls(files.values())

    def named(self, name: str) -> Any:
        """A message by its full name."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise ConfigError(f"there is no message {name!r} in the Protobuf definitions") from None

    def at(self, path: tuple[int, ...]) -> Any:
        """A message of the last file by its place there."""
        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorProto()
        self._pool.FindFileByName(self.last).CopyToProto(file)
        name, messages = file.package, file.message_type
        for index in path:
            if index >= len(messages) or index < 0:
                raise BadRecordError(f"its schema has no message at {list(path)}")
            name = f"{name}.{messages[index].name}" if name else messages[index].name
            messages = messages[index].nested_type
        return self._pool.FindMessageTypeByName(name)

    def _add_well_known(self, file: Any) -> None:
        """Google's own files, which come with the library and not with the definitions."""
        from google.protobuf import descriptor_pool

        for name in file.dependency:
            try:
                self._pool.FindFileByName(name)
            except KeyError:
                if name.startswith("google/protobuf/"):
                    _import_well_known(name)
                    known = descriptor_pool.Default().FindFileByName(name)
                    copy = type(file)()
                    known.CopyToProto(copy)
                    self._add_well_known(copy)
                    self._pool.Add(copy)


class ProtobufFormat:
    """Makes values of one Arrow type from messages.

    Raises:
        ConfigError: what is in the messages is never of the target's types.
    """

    def __init__(self, message: Any, target: pa.DataType) -> None:
        self._handler = _handler(message)
        self._target = target
        problem = fits(arrow_of_message(message), target)
        if problem is not None:
            raise ConfigError(f"the query's schema does not fit message {message.full_name}: {problem}")

    def decode(self, values: pa.Array) -> Decoded:
        return decode_isolating(values, self._whole, self._careful)

    def _whole(self, values: pa.Array) -> pa.Array:
        try:
            return self._columns(values)
        except (ValueError, BadRecordError):
            raise WholeRefusedError from None

    def _careful(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        pieces: list[pa.Array] = []
        bad: dict[int, str] = {}
        for row in range(len(values)):
            try:
                pieces.append(self._columns(values.slice(row, 1)))
            except BadRecordError as problem:
                bad[row] = str(problem)
            except ValueError:
                bad[row] = "not Protobuf of this message"
            if row in bad:
                pieces.append(pa.nulls(1, self._target))
        return Decoded(pa.concat_arrays(pieces), bad)

    def _columns(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        batch = self._handler.array_to_record_batch(values)
        return fit(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)), self._target)


def arrow_of_message(message: Any) -> pa.DataType:
    """The Arrow type of a message's values: enums are texts, a message inside itself is bytes."""
    import pyarrow as pa

    return pa.struct(list(_handler(message).schema()))


def _handler(message: Any) -> Any:
    try:
        import ptars
    except ImportError as problem:
        raise _missing() from problem
    settings = ptars.PtarsConfig(timestamp_unit="us", enum_repr="string")
    return ptars.HandlerPool([message.file], config=settings).get_for_message(message)


def _protobuf() -> Any:
    try:
        from google.protobuf import descriptor_pb2
    except ImportError as problem:
        raise _missing() from problem
    return descriptor_pb2


def _decode_error() -> type[Exception]:
    from google.protobuf import message

    found: type[Exception] = message.DecodeError
    return found


def _missing() -> MissingDependencyError:
    return MissingDependencyError("format protobuf needs ptars and protobuf: pip install 'kadence[decode]'")


def _import_well_known(name: str) -> None:
    from importlib import import_module

    try:
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise ConfigError(f"the Protobuf definitions import {name}, which is not among them") from None
