"""Confluent's wire format for whole batches; `kadence_schemas.framing` describes it.

Rows of one batch may have different schemas. They are grouped, each group is decoded with its own schema onto the
query's types, and the rows are put back in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kadence.columns.isolation import BadRecordError, Decoded, over_nulls
from kadence.errors import ConfigError, KafkaError, MissingDependencyError, SerializationError
from kadence_schemas.framing import HEADER, VALUE_HEADER, Frame, frame_of, said_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BESIDE", "DecodersFor", "Frame", "FramedFormat", "unusable"]

BESIDE: Final = ("headers", "topic")
"""The columns of records that, with keys and values, determine their schemas."""


def unusable(frame: Frame, problem: Exception) -> BadRecordError:
    """Why a registry's schema cannot be used: records that name it are bad, and others are still read.

    Raises:
        KafkaError: the schema is not at fault, for example if a library is not installed.
    """
    if isinstance(problem, BadRecordError):
        return problem
    if isinstance(problem, MissingDependencyError | MemoryError) or (
        isinstance(problem, KafkaError) and not isinstance(problem, ConfigError)
    ):
        raise problem
    said = str(problem) if isinstance(problem, ConfigError) else type(problem).__name__
    return BadRecordError(f"{said_of(frame.schema)} cannot be used: {said}")


class _Decoder(Protocol):
    def decode(self, values: pa.Array) -> Decoded: ...


DecodersFor: TypeAlias = "Callable[[list[Frame]], Mapping[Frame, _Decoder | BadRecordError]]"


class FramedFormat:
    """Cuts off the bytes before the data, and decodes the rest with the decoder that ``decoders_for`` returns.

    Args:
        target: the Arrow type of all columns.
        decoders_for: gets all frames of a batch at once, before decoding; returns the reason for a frame whose schema
            does not exist. Not called again for one that has a decoder.
        with_path: whether a message's place follows the schema.
        header: the header that may name a schema. subject: the subject in which a topic's ids are looked up; None:
            none.
    """

    def __init__(
        self,
        target: pa.DataType,
        decoders_for: DecodersFor,
        *,
        with_path: bool = False,
        header: str = VALUE_HEADER,
        subject: Callable[[str], str | None] | None = None,
    ) -> None:
        self._target = target
        self._decoders_for = decoders_for
        self._with_path = with_path
        self._header = header
        self._subject = subject
        self._known: dict[Frame, _Decoder] = {}

    def decode(self, values: pa.Array, headers: pa.Array = None, topics: pa.Array = None) -> Decoded:
        """A row for each value, and the reason for each that is bad.

        Args:
            headers, topics: the columns `BESIDE` of the same records; None: there are neither headers nor subjects.
        """
        if not values.null_count:
            return self._decode(values, headers, topics)
        present = values.is_valid()
        beside = [None if each is None else each.filter(present) for each in (headers, topics)]
        return over_nulls(values, lambda dense: self._decode(dense, *beside))

    def unknown(self, values: pa.Array, headers: pa.Array = None, topics: pa.Array = None) -> list[int]:
        """The rows whose frames have no decoder yet. The others can be decoded without a request."""
        import pyarrow.compute as pc

        mask = values.is_valid()
        present = pc.indices_nonzero(mask)
        beside = [None if each is None else each.filter(mask) for each in (headers, topics)]
        groups, _ = self._grouped(values.drop_null(), *beside)
        unknown = (rows for frame, rows in groups.items() if frame not in self._known)
        return sorted(row for rows in unknown for row in present.take(rows).to_pylist())

    def _decode(self, values: pa.Array, headers: pa.Array, topics: pa.Array) -> Decoded:
        groups, bad = self._grouped(values, headers, topics)
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

    def _grouped(
        self, values: pa.Array, headers: pa.Array, topics: pa.Array
    ) -> tuple[dict[Frame, pa.Array], dict[int, str]]:
        """The rows of each frame in ascending order, and the reason for each row without one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        groups: dict[Frame, list[pa.Array]] = {}
        bad: dict[int, str] = {}
        named = None if headers is None else _announced(headers, self._header)
        for subject, rows in self._by_subject(topics):
            mine = values if rows is None else values.take(rows)
            names = named if named is None or rows is None else named.take(rows)
            parts: list[tuple[pa.Array, _Grouped]] = []
            if names is None:
                parts.append((None, _by_head(mine, with_path=self._with_path)))
            else:
                with_header, alone = (
                    pc.indices_nonzero(each) for each in (names.is_valid(), names.is_null())
                )
                found = _by_header(names.drop_null(), self._header, with_path=self._with_path)
                parts.append((with_header, found))
                parts.append((alone, _by_head(mine.take(alone), with_path=self._with_path)))
            for places, (frames, refused) in parts:
                place = _places(rows, places)
                for frame, at in frames.items():
                    key = frame if subject is None else frame._replace(subject=subject)
                    groups.setdefault(key, []).append(at if place is None else place.take(at))
                bad |= {row if place is None else place[row].as_py(): why for row, why in refused.items()}
        return {
            frame: found[0]
            if len(found) == 1
            else pa.array(sorted(pa.concat_arrays(found).to_pylist()), pa.uint64())
            for frame, found in groups.items()
        }, bad

    def _by_subject(self, topics: pa.Array) -> Iterator[tuple[str | None, pa.Array]]:
        """The rows of each subject; None for all of them."""
        if self._subject is None or topics is None:
            yield None, None
            return
        import pyarrow.compute as pc

        for topic in topics.unique().to_pylist():
            yield self._subject(topic), pc.indices_nonzero(pc.equal(topics, topic))

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
    # Not binary_slice(mine, size): pyarrow 26 computes a negative size for short values.
    return pc.binary_replace_slice(mine, 0, size, b"")


def _in_order(pieces: list[pa.Array], order: list[pa.Array], rows: int, target: pa.DataType) -> pa.Array:
    """The groups' rows in their places; rows of no group are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pieces:
        return pa.nulls(rows, target)
    places = pc.index_in(pa.array(range(rows), pa.uint64()), value_set=pa.concat_arrays(order))
    return pa.concat_arrays(pieces).take(places)


def _places(rows: pa.Array, places: pa.Array) -> pa.Array:
    """Rows of rows; None stands for all."""
    if places is None:
        return rows
    return places if rows is None else rows.take(places)


def _announced(headers: pa.Array, name: str) -> pa.Array:
    """The value of the first header of this name in each row, null if there is none; None if no row has it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = headers.flatten()
    mine = pc.equal(pairs.field("key"), name)
    if not pc.any(mine).as_py():
        return None
    rows = pc.list_parent_indices(headers).filter(mine).to_pylist()
    found: list[bytes | None] = [None] * len(headers)
    # Backwards, so that the first one of a row is written last.
    for row, content in zip(
        reversed(rows), reversed(pairs.field("value").filter(mine).to_pylist()), strict=True
    ):
        found[row] = content
    made = pa.array(found, pa.binary())
    return None if made.null_count == len(made) else made


_Grouped: TypeAlias = "tuple[dict[Frame, pa.Array], dict[int, str]]"


def _by_header(names: pa.Array, header: str, *, with_path: bool) -> _Grouped:
    """The rows of each frame that headers name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    groups: dict[Frame, list[int]] = {}
    bad: dict[int, str] = {}
    for name in names.unique().to_pylist():
        rows = pc.indices_nonzero(pc.equal(names, pa.scalar(name, pa.binary()))).to_pylist()
        try:
            frame = frame_of(b"", name, with_path=with_path, name=header)
        except SerializationError as problem:
            bad |= dict.fromkeys(rows, str(problem))
        else:
            groups.setdefault(frame, []).extend(rows)
    return {frame: pa.array(sorted(rows), pa.uint64()) for frame, rows in groups.items()}, bad


def _by_head(values: pa.Array, *, with_path: bool) -> _Grouped:
    """The rows of each frame that values begin with."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A single byte 0 instead of a path means the first message, by far the most common one.
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
        if len(head) == shortest and not head[0] and not (with_path and head[HEADER]):
            groups[Frame(int.from_bytes(head[1:HEADER], "big"), path, shortest)] = rows
            continue
        for row in rows.to_pylist():
            try:
                frame = frame_of(values[row].as_py(), None, with_path=with_path)
            except SerializationError as problem:
                bad[row] = str(problem)
            else:
                others.setdefault(frame, []).append(row)
    return groups | {frame: pa.array(sorted(found), pa.uint64()) for frame, found in others.items()}, bad


def _counts(indices: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    counts: list[int] = pc.value_counts(indices).field("counts").to_pylist()
    return counts
