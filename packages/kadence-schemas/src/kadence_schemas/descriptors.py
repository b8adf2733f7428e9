"""Descriptors of Protobuf messages: of a registry, of a file, of a class.

A file is the output of ``protoc --include_imports --descriptor_set_out``. A registry returns compiled definitions with
``format=serialized``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from kadence.columns.isolation import BadRecordError
from kadence.errors import ConfigError, MissingDependencyError
from kadence_schemas.known_files import KNOWN_FILES, known_file
from kadence_schemas.schemas import ResolvedSchema

__all__ = ["NO_REGISTRY", "Messages"]

NO_REGISTRY: Final = "a ProtobufDeserializer with a message_type needs none of them"
"""What a deserialiser does without a registry's definitions."""


class Messages:
    """The messages of some files of definitions.

    Attributes:
        last: the name of the main file, which imports the others.
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
                f"option {option}: {name!r} is not a descriptor set; protoc --include_imports "
                "--descriptor_set_out writes one"
            ) from None

    @classmethod
    def of_registered(cls, registered: ResolvedSchema, instead: str) -> Messages:
        """From a registry.

        Args:
            instead: for the error, where else the definitions may come from.

        Raises:
            ConfigError: its answer is not a compiled definition.
        """
        descriptors = _protobuf()
        files: dict[str, Any] = {}

        def add(name: str, found: ResolvedSchema) -> None:
            if name in files:
                return
            for item, reference in found.references:
                add(item, reference)
            try:
                file = descriptors.FileDescriptorProto.FromString(base64.b64decode(found.text, validate=True))
            except (ValueError, _decode_error()):
                raise ConfigError(
                    f"the schema registry returns no compiled Protobuf definitions (format=serialized); {instead}"
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
        """A message of the last file by its index path there."""
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
        """The files that a file imports from libraries, and that the definitions do not contain."""
        for name in file.dependency:
            try:
                self._pool.FindFileByName(name)
            except KeyError:
                if name.startswith(KNOWN_FILES):
                    known = known_file(name) or _of_library(name, type(file))
                    self._add_well_known(known)
                    self._pool.Add(known)


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
    return MissingDependencyError("Protobuf needs protobuf: pip install 'kadence[protobuf]'")


def _of_library(name: str, kind: Any) -> Any:
    """One of Google's own files, from the library's module."""
    from importlib import import_module

    from google.protobuf import descriptor_pool

    try:
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        known = descriptor_pool.Default().FindFileByName(name)
    except (ImportError, KeyError):
        raise ConfigError(f"the Protobuf definitions import {name}, which is not among them") from None
    copy = kind()
    known.CopyToProto(copy)
    return copy
