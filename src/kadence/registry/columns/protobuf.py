"""format protobuf: ptars decodes batches into Arrow; which record is bad it says one by one.

The descriptors of messages: `kadence.registry.descriptors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kadence.errors import ConfigError, MissingDependencyError
from kadence.registry.columns.fitting import fit, fits
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

        try:
            batch = self._handler.array_to_record_batch(values)
        except BaseException as problem:
            # A length that is negative as an int64, for one; anything else of this kind is not ours to catch.
            if not is_panic(problem):
                raise
            raise ValueError("not Protobuf of this message") from None
        if not batch.num_columns:
            # Of a message without fields its columns do not say how many there were.
            return fit(pa.array([{}] * len(values), pa.struct([])), self._target)
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


def _missing() -> MissingDependencyError:
    return MissingDependencyError("format protobuf needs ptars and protobuf: pip install 'kadence[decode]'")
