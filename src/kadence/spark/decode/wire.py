"""Confluent's wire format: a zero byte, a schema id in four bytes, and for Protobuf the message's place in its file.

Rows of one batch may have different ids. They are grouped, each group is decoded with its own schema onto the query's
types, and the rows are put back into their order. Source: Confluent's documentation of Schema Registry, "Wire format".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.spark.decode.isolation import BadRecordError, Decoded, over_nulls

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Frame", "FramedFormat"]

HEADER: Final = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """What comes before the data.

    Attributes:
        schema_id: of the registry. path: indexes of nested messages, outermost first; Protobuf only.
        size: bytes until the data begins.
    """

    schema_id: int
    path: tuple[int, ...]
    size: int


class _Decoder(Protocol):
    def decode(self, values: pa.Array) -> Decoded: ...


class FramedFormat:
    """Cuts off what comes before the data, and decodes the rest with what ``decoder_for`` gives for it.

    Args:
        target: the Arrow type of all columns.
        decoder_for: raises `BadRecordError` where the schema does not exist; asked once for a frame that does.
        with_path: whether a message's place follows the id.
    """

    def __init__(
        self, target: pa.DataType, decoder_for: Callable[[Frame], _Decoder], *, with_path: bool = False
    ) -> None:
        self._target = target
        self._decoder_for = decoder_for
        self._with_path = with_path
        self._known: dict[Frame, _Decoder] = {}

    def decode(self, values: pa.Array) -> Decoded:
        return over_nulls(values, self._decode)

    def _decode(self, values: pa.Array) -> Decoded:

        groups, bad = _grouped(values, with_path=self._with_path)
        pieces: list[pa.Array] = []
        order: list[Any] = []
        for frame, rows in groups.items():
            try:
                if frame not in self._known:
                    self._known[frame] = self._decoder_for(frame)
                decoded = self._known[frame].decode(_bodies(values, rows, frame.size))
            except BadRecordError as problem:
                bad |= {int(row): str(problem) for row in rows}
                continue
            pieces.append(decoded.column)
            order.append(rows)
            bad |= {int(rows[row]): reason for row, reason in decoded.bad.items()}
        if len(pieces) == 1 and len(pieces[0]) == len(values):
            return Decoded(pieces[0], bad)
        return Decoded(_in_order(pieces, order, len(values), self._target), dict(sorted(bad.items())))


def _bodies(values: pa.Array, rows: Any, size: int) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    mine = values if len(rows) == len(values) else values.take(pa.array(rows))
    # Not binary_slice(mine, size): pyarrow 26 reckons with a negative size where values are short.
    return pc.binary_replace_slice(mine, 0, size, b"")


def _in_order(pieces: list[pa.Array], order: list[Any], rows: int, target: pa.DataType) -> pa.Array:
    """The groups' rows where they belong; rows of no group are null."""
    import numpy as np
    import pyarrow as pa

    if not pieces:
        return pa.nulls(rows, target)
    places = np.concatenate(order)
    index = np.zeros(rows, np.int64)
    missing = np.ones(rows, bool)
    index[places] = np.arange(len(places))
    missing[places] = False
    return pa.concat_arrays(pieces).take(pa.array(index, mask=missing))


def _grouped(values: pa.Array, *, with_path: bool) -> tuple[dict[Frame, Any], dict[int, str]]:
    """The rows of each frame in ascending order, and the rows that have none."""
    import numpy as np

    shortest = HEADER + with_path
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    content = values.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    starts, sizes = offsets[:-1], np.diff(offsets)
    bad = {
        int(row): f"{sizes[row]} bytes are too few for a schema id"
        for row in np.flatnonzero(sizes < shortest)
    }
    rows = np.flatnonzero(sizes >= shortest)
    magic = data[starts[rows]]
    bad |= {
        int(row): f"it begins with byte {byte} where a schema id is announced by 0"
        for row, byte in zip(rows[magic != 0], magic[magic != 0], strict=True)
    }
    rows = rows[magic == 0]
    at = starts[rows]
    ids = sum(data[at + 1 + place].astype(np.int64) << (24 - 8 * place) for place in range(4))
    groups: dict[Frame, Any] = {}
    plain = np.ones(len(rows), bool)
    if with_path:
        # One byte 0 stands for the first message, which is nearly always meant.
        plain = data[at + HEADER] == 0
    path: tuple[int, ...] = (0,) if with_path else ()
    for schema_id in np.unique(ids[plain]) if len(rows) else ():
        groups[Frame(int(schema_id), path, shortest)] = rows[plain & (ids == schema_id)]
    others: dict[Frame, list[int]] = {}
    for place in np.flatnonzero(~plain):
        row = int(rows[place])
        try:
            path, size = _path(values[row].as_py())
        except BadRecordError as problem:
            bad[row] = str(problem)
        else:
            others.setdefault(Frame(int(ids[place]), path, size), []).append(row)
    return groups | {frame: np.array(found) for frame, found in others.items()}, bad


def _path(value: bytes) -> tuple[tuple[int, ...], int]:
    """A message's place, and where the data begins: zigzag varints, their number first."""
    at = HEADER
    found: list[int] = []
    wanted = 1
    while len(found) < wanted:
        number = shift = 0
        while True:
            if at >= len(value) or shift > 28:
                raise BadRecordError("the place of the message in its file cannot be read")
            byte = value[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        found.append(number)
        if len(found) == 1:
            wanted = 1 + number
            if not 0 <= number <= 100:
                raise BadRecordError("the place of the message in its file cannot be read")
    return tuple(found[1:]) or (0,), at
