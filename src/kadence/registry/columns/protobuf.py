"""format protobuf: ptars decodes batches into Arrow; which record is bad it says one by one.

The descriptors of messages: `kadence.registry.descriptors`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kadence.errors import ConfigError, MissingDependencyError
from kadence.registry.columns.fitting import fit, fits, struct_of
from kadence.registry.columns.isolation import (
    BadRecordError,
    Decoded,
    WholeRefusedError,
    decode_isolating,
    is_panic,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ProtobufFormat", "arrow_of_message"]

_NEARLY_ENDLESS: Final = (
    # The tag of a field that has a length, in a byte or in several.
    r"(?:[\x02\x0a\x12\x1a\x22\x2a\x32\x3a\x42\x4a\x52\x5a\x62\x6a\x72\x7a]"
    r"|[\x82\x8a\x92\x9a\xa2\xaa\xb2\xba\xc2\xca\xd2\xda\xe2\xea\xf2\xfa][\x80-\xff]{0,8}[\x00-\x7f])"
    r"[\x80-\xff]{5}\xff{4}[\x01-\x7f]"
)
"""A length of nearly 2^64 bytes, as an expression over bytes. ptars adds it to where it stands, and panics."""

_IN_ALL_SUCH: Final = b"\xff\xff\xff\xff"
"""Looked for first, which is quick."""

_SHALLOW: Final = 32 * 1024
"""In so many bytes no groups are so deep inside each other that ptars, which follows them, leaves a stack of 4 MiB."""


class ProtobufFormat:
    """Makes values of one Arrow type from messages.

    Raises:
        ConfigError: what is in the messages is never of the target's types.
    """

    def __init__(self, message: Any, target: pa.DataType) -> None:
        from google.protobuf import message_factory

        self._handler = _handler(message)
        self._parse = message_factory.GetMessageClass(message).FromString
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
        self._refuse_fatal(values)
        try:
            batch = self._handler.array_to_record_batch(values)
        except BaseException as problem:
            # A length that is negative as an int64, for one; anything else of this kind is not ours to catch.
            if not is_panic(problem):
                raise
            raise ValueError("not Protobuf of this message") from None
        return fit(struct_of(batch), self._target)

    def _refuse_fatal(self, values: pa.Array) -> None:
        """Keep from ptars what it would not survive, or would write a panic to stderr about.

        Few records can be such; Google's parser, which knows both, sees them first.

        Raises:
            ValueError: a record is such.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        doubtful = pc.greater(pc.binary_length(values), pa.scalar(_SHALLOW))
        if _IN_ALL_SUCH in _bytes_of(values):
            doubtful = pc.or_(doubtful, pc.match_substring_regex(values, pattern=_NEARLY_ENDLESS))
        if not pc.any(doubtful).as_py():
            return
        for value in values.filter(doubtful):
            try:
                self._parse(value.as_py())
            # It has an error of its own, which is no ValueError.
            except Exception:  # noqa: BLE001
                raise ValueError("not Protobuf of this message") from None


def _bytes_of(values: pa.Array) -> bytes:
    """All of an array of binary without nulls, one value behind the other."""
    _, ends, data = values.buffers()
    if data is None or not len(values):
        return b""
    first, last = (
        struct.unpack_from("=i", ends, 4 * place)[0] for place in (values.offset, values.offset + len(values))
    )
    return bytes(data.slice(first, last - first).to_pybytes())


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
    try:
        return ptars.HandlerPool([message.file], config=settings).get_for_message(message)
    except BaseException as problem:
        # Such as two names of one number in an enum that does not allow it. Google's runtime takes them.
        if not is_panic(problem):
            raise
        raise ConfigError(f"ptars cannot read the definitions of message {message.full_name}") from None


def _missing() -> MissingDependencyError:
    return MissingDependencyError("format protobuf needs ptars and protobuf: pip install 'kadence[decode]'")
