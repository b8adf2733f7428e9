"""format protobuf: ptars decodes batches into Arrow; to find a bad record it decodes one at a time.

The descriptors of messages: `kadence_schemas.descriptors`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kadence.columns.isolation import (
    BadRecordError,
    Decoded,
    WholeRefusedError,
    decode_isolating,
    is_panic,
)
from kadence.errors import ConfigError, MissingDependencyError
from kadence_schemas.columns.fitting import fit, fits, struct_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ProtobufFormat", "arrow_of_message"]

_NEARLY_ENDLESS: Final = (
    # The tag of a field that has a length, in a byte or in several.
    r"(?:[\x02\x0a\x12\x1a\x22\x2a\x32\x3a\x42\x4a\x52\x5a\x62\x6a\x72\x7a]"
    r"|[\x82\x8a\x92\x9a\xa2\xaa\xb2\xba\xc2\xca\xd2\xda\xe2\xea\xf2\xfa][\x80-\xff]{0,8}[\x00-\x7f])"
    r"[\x80-\xff]{5}\xff{4}[\x01-\x7f]"
)
"""A length of nearly 2^64 bytes, as an expression over bytes. ptars adds it to its position, and panics."""

_IN_ALL_SUCH: Final = b"\xff\xff\xff\xff"
"""Searched first, which is quick."""

_ENDS: Final = (-(2**63), 2**63 - 1)
"""What ptars makes of a time that does not fit into 64 bits."""

_SHALLOW: Final = 32 * 1024
"""In this many bytes groups cannot be nested so deeply that ptars, which follows them, overflows a stack of 4 MiB."""


class ProtobufFormat:
    """Makes values of one Arrow type from messages.

    Raises:
        ConfigError: the messages can never have the target's types.
    """

    def __init__(self, message: Any, target: pa.DataType) -> None:
        from google.protobuf import message_factory

        self._handler = _handler(message)
        self._message = message
        self._parse = message_factory.GetMessageClass(message).FromString
        self._has_closed_enums = _has_closed_enums(message, set())
        self._target = target
        kind = arrow_of_message(message)
        self._has_times = _has_times(kind)
        problem = fits(kind, target)
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
        found = self._struct(values)
        if self._has_closed_enums and _has_strays(found, self._message):
            found = self._struct(self._without_unknown(values))
        if self._has_times:
            _check_times(found)
        return fit(found, self._target)

    def _without_unknown(self, values: pa.Array) -> pa.Array:
        """The messages as read by Google's parser: an unknown number of a closed enum counts as not set.

        Raises:
            ValueError: a value is not a message.
        """
        import pyarrow as pa

        made = []
        for value in values.to_pylist():
            try:
                message = self._parse(value)
            # Its own error is not a ValueError.
            except Exception:  # noqa: BLE001
                raise ValueError("not Protobuf of this message") from None
            message.DiscardUnknownFields()
            made.append(message.SerializePartialToString())
        return pa.array(made, pa.binary())

    def _struct(self, values: pa.Array) -> pa.Array:
        try:
            batch = self._handler.array_to_record_batch(values)
        except BaseException as problem:
            # For example a length that is negative as an int64; any other exception of this kind must not be caught
            # here.
            if not is_panic(problem):
                raise
            raise ValueError("not Protobuf of this message") from None
        return struct_of(batch)

    def _refuse_fatal(self, values: pa.Array) -> None:
        """Keep records from ptars that would crash it, or make it write a panic to stderr.

        Few records can be like that; Google's parser, which handles both, checks them first.

        Raises:
            ValueError: there is such a record.
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
            # Its own error is not a ValueError.
            except Exception:  # noqa: BLE001
                raise ValueError("not Protobuf of this message") from None


def _bytes_of(values: pa.Array) -> bytes:
    """The bytes of a binary array without nulls, concatenated."""
    _, ends, data = values.buffers()
    if data is None or not len(values):
        return b""
    first, last = (
        struct.unpack_from("=i", ends, 4 * place)[0] for place in (values.offset, values.offset + len(values))
    )
    return bytes(data.slice(first, last - first).to_pybytes())


def _has_closed_enums(message: Any, seen: set[str]) -> bool:
    """Whether a message, or one inside it, has an enum of proto2, which is closed."""
    seen.add(message.full_name)
    for field in message.fields:
        if field.enum_type is not None and field.enum_type.is_closed:
            return True
        inner = field.message_type
        if inner is not None and inner.full_name not in seen and _has_closed_enums(inner, seen):
            return True
    return False


def _has_strays(column: pa.Array, message: Any) -> bool:
    """Whether a closed enum has a number without a name, which ptars returns as digits."""
    return any(_is_stray(column.field(place), field) for place, field in enumerate(message.fields))


def _is_stray(column: pa.Array, field: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_map(column.type):
        return _is_stray(column.items, field.message_type.fields_by_name["value"])
    if pa.types.is_list(column.type):
        return _is_stray(column.flatten(), field)
    if field.enum_type is not None and field.enum_type.is_closed:
        names = pa.array([each.name for each in field.enum_type.values], column.type)
        return not pc.all(pc.is_in(column.drop_null(), value_set=names)).as_py()
    return (
        field.message_type is not None
        and pa.types.is_struct(column.type)
        and _has_strays(column, field.message_type)
    )


def _has_times(kind: pa.DataType) -> bool:
    """Whether there are timestamps or durations in values of this type."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(_has_times(kind.field(place).type) for place in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _has_times(kind.item_type)
    if pa.types.is_list(kind):
        return _has_times(kind.value_type)
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def _check_times(column: pa.Array) -> None:
    """Refuse what ptars has changed into the nearest time that 64 bits hold.

    Raises:
        BadRecordError: there is such a time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _check_times(column.field(place))
    elif pa.types.is_map(kind):
        _check_times(column.items)
    elif pa.types.is_list(kind):
        _check_times(column.flatten())
    elif _has_times(kind):
        ends = pc.is_in(column.view(pa.int64()), value_set=pa.array(_ENDS, pa.int64()))
        if pc.any(ends).as_py():
            raise BadRecordError(f"a time does not fit into {kind}")


def arrow_of_message(message: Any) -> pa.DataType:
    """The Arrow type of a message's values: enums are strings, a recursive message is bytes."""
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
        # For example two names of one number in an enum that does not allow it. Google's runtime accepts them.
        if not is_panic(problem):
            raise
        raise ConfigError(f"ptars cannot read the definitions of message {message.full_name}") from None


def _missing() -> MissingDependencyError:
    return MissingDependencyError("format protobuf needs ptars and protobuf: pip install 'kadence[decode]'")
