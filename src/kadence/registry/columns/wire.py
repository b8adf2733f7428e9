"""Confluent's wire format: a zero byte, a schema id in four bytes, and for Protobuf the message's place in its file.

Rows of one batch may have different ids. They are grouped, each group is decoded with its own schema onto the query's
types, and the rows are put back into their order. Source: Confluent's documentation of Schema Registry, "Wire format".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kadence.errors import SerializationError
from kadence.registry.columns.isolation import BadRecordError, Decoded, over_nulls
from kadence.registry.framing import HEADER, message_place

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DecodersFor", "Frame", "FramedFormat"]


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


DecodersFor: TypeAlias = "Callable[[list[Frame]], Mapping[Frame, _Decoder | BadRecordError]]"


class FramedFormat:
    """Cuts off what comes before the data, and decodes the rest with what ``decoders_for`` gives for it.

    Args:
        target: the Arrow type of all columns.
        decoders_for: gets all frames of a batch at once, before anything is decoded; gives the reason for a frame
            whose schema does not exist. Not asked again for one that has a decoder.
        with_path: whether a message's place follows the id.
    """

    def __init__(self, target: pa.DataType, decoders_for: DecodersFor, *, with_path: bool = False) -> None:
        self._target = target
        self._decoders_for = decoders_for
        self._with_path = with_path
        self._known: dict[Frame, _Decoder] = {}

    def decode(self, values: pa.Array) -> Decoded:
        return over_nulls(values, self._decode)

    def unknown(self, values: pa.Array) -> list[int]:
        """The rows whose frames have no decoder yet. To decode the others nobody is asked."""
        import pyarrow.compute as pc

        groups, _ = _grouped(values.drop_null(), with_path=self._with_path)
        present = pc.indices_nonzero(values.is_valid())
        unknown = (rows for frame, rows in groups.items() if frame not in self._known)
        return sorted(row for rows in unknown for row in present.take(rows).to_pylist())

    def _decode(self, values: pa.Array) -> Decoded:
        groups, bad = _grouped(values, with_path=self._with_path)
        pieces: list[pa.Array] = []
        order: list[pa.Array] = []
        decoders = self._decoders(list(groups))
        for frame, rows in groups.items():
            decoder = decoders[frame]
            if isinstance(decoder, BadRecordError):
                bad |= dict.fromkeys(rows.to_pylist(), str(decoder))
                continue
            decoded = decoder.decode(_bodies(values, rows, frame.size))
            pieces.append(decoded.column)
            order.append(rows)
            bad |= {rows[row].as_py(): reason for row, reason in decoded.bad.items()}
        if len(pieces) == 1 and len(pieces[0]) == len(values):
            return Decoded(pieces[0], bad)
        return Decoded(_in_order(pieces, order, len(values), self._target), dict(sorted(bad.items())))

    def _decoders(self, frames: list[Frame]) -> Mapping[Frame, _Decoder | BadRecordError]:
        new = [frame for frame in frames if frame not in self._known]
        if not new:
            return self._known
        made = self._decoders_for(new)
        self._known |= {
            frame: decoder for frame, decoder in made.items() if not isinstance(decoder, BadRecordError)
        }
        return {**made, **self._known}


def _bodies(values: pa.Array, rows: pa.Array, size: int) -> pa.Array:
    import pyarrow.compute as pc

    mine = values if len(rows) == len(values) else values.take(rows)
    # Not binary_slice(mine, size): pyarrow 26 reckons with a negative size where values are short.
    return pc.binary_replace_slice(mine, 0, size, b"")


def _in_order(pieces: list[pa.Array], order: list[pa.Array], rows: int, target: pa.DataType) -> pa.Array:
    """The groups' rows where they belong; rows of no group are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pieces:
        return pa.nulls(rows, target)
    places = pc.index_in(pa.array(range(rows), pa.uint64()), value_set=pa.concat_arrays(order))
    return pa.concat_arrays(pieces).take(places)


def _grouped(values: pa.Array, *, with_path: bool) -> tuple[dict[Frame, pa.Array], dict[int, str]]:
    """The rows of each frame in ascending order, and the rows that have none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # One byte 0 in place of a path stands for the first message, which is nearly always meant.
    path: tuple[int, ...] = (0,) if with_path else ()
    shortest = HEADER + with_path
    heads = pc.binary_slice(values, 0, shortest).dictionary_encode()
    # Heads are numbered, and counted, as they come; the order of rows with the same one stays.
    order = pc.array_sort_indices(heads.indices)
    groups: dict[Frame, pa.Array] = {}
    bad: dict[int, str] = {}
    others: dict[Frame, list[int]] = {}
    start = 0
    for head, count in zip(heads.dictionary.to_pylist(), _counts(heads.indices), strict=True):
        rows = order.slice(start, count)
        start += count
        if len(head) < shortest:
            bad |= dict.fromkeys(rows.to_pylist(), f"{len(head)} bytes are too few for a schema id")
        elif head[0]:
            said = f"it begins with byte {head[0]} where a schema id is announced by 0"
            bad |= dict.fromkeys(rows.to_pylist(), said)
        elif with_path and head[HEADER]:
            for row in rows.to_pylist():
                try:
                    place, size = message_place(values[row].as_py())
                except SerializationError as problem:
                    bad[row] = str(problem)
                else:
                    frame = Frame(int.from_bytes(head[1:HEADER], "big"), place, size)
                    others.setdefault(frame, []).append(row)
        else:
            groups[Frame(int.from_bytes(head[1:HEADER], "big"), path, shortest)] = rows
    return groups | {frame: pa.array(sorted(found), pa.uint64()) for frame, found in others.items()}, bad


def _counts(indices: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    counts: list[int] = pc.value_counts(indices).field("counts").to_pylist()
    return counts
