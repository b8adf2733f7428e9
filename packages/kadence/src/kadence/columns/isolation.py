"""A batch is decoded at once; where that fails, smaller parts are, and at last single records.

Two decoders of one format stand behind this: a *whole* one, fast, which takes all or nothing, and a *careful* one
that says of each record whether it is bad and why. What the whole one accepts it decides: the careful one is asked
only about parts that it refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.lazy_dataclasses import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BadRecordError",
    "Decoded",
    "WholeRefusedError",
    "decode_isolating",
    "is_panic",
    "over_nulls",
    "put_back",
    "rows_of",
]

SMALL: Final = 128
"""So many records are looked at one by one: about what a call of the whole decoder costs."""

PARTS: Final = 8
"""A refused batch is tried in so many parts."""


class WholeRefusedError(Exception):
    """Some record of the batch cannot be decoded at once; the careful decoder knows which."""


class BadRecordError(ValueError):
    """One record's bytes are not what its format and schema say. The text never holds the record's contents."""


def is_panic(problem: BaseException) -> bool:
    """Whether a decoder in Rust has tripped over the bytes. What it raises then is no `Exception`."""
    return type(problem).__name__ == "PanicException"


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a batch.

    Attributes:
        column: a row for each record; null where the record is bad or was null.
        bad: the reason for each bad row.
    """

    column: pa.Array
    bad: dict[int, str] = field(default_factory=dict)


Whole: TypeAlias = "Callable[[pa.Array], pa.Array]"
Careful: TypeAlias = "Callable[[pa.Array], Decoded]"


def decode_isolating(values: pa.Array, whole: Whole, careful: Careful) -> Decoded:
    """Decode all values, null ones to null.

    Args:
        whole: raises `WholeRefusedError` unless every value is good; never sees a null.
        careful: says which values are bad; never sees a null.
    """
    return over_nulls(values, lambda present: _decode(present, whole, careful))


def over_nulls(values: pa.Array, decode: Careful) -> Decoded:
    """Decode what is not null; the rest is null, and no error."""
    if not values.null_count:
        return decode(values)
    import pyarrow as pa
    import pyarrow.compute as pc

    present = values.is_valid()
    dense = decode(values.drop_null())
    places = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
    column = dense.column.take(pc.if_else(present, places, pa.scalar(None, pa.int64())))
    rows = pc.indices_nonzero(present)
    return Decoded(column, {rows[row].as_py(): reason for row, reason in dense.bad.items()})


def put_back(column: pa.Array, rows: list[int], rest: Decoded) -> Decoded:
    """A column with other values in some rows.

    Args:
        rows: ascending. rest: what stands in them, one for each, of the column's type.
    """
    import pyarrow as pa

    places = list(range(len(column)))
    for place, row in enumerate(rows, len(column)):
        places[row] = place
    both = pa.concat_arrays([column, rest.column])
    return Decoded(both.take(pa.array(places)), {rows[row]: why for row, why in rest.bad.items()})


def rows_of(documents: list[Any], build: Callable[[list[Any]], pa.Array], bad: dict[int, str]) -> pa.Array:
    """Build a column; where that fails build each row alone, and note why it cannot be.

    Args:
        build: raises `BadRecordError`. bad: gets the reasons.
    """
    import pyarrow as pa

    try:
        return build(documents)
    except BadRecordError:
        pass
    rows = []
    for row, document in enumerate(documents):
        try:
            rows.append(build([document]))
        except BadRecordError as problem:
            bad[row] = str(problem)
            rows.append(build([None]))
    return pa.concat_arrays(rows)


def _decode(values: pa.Array, whole: Whole, careful: Careful) -> Decoded:
    import pyarrow as pa

    try:
        return Decoded(whole(values))
    except WholeRefusedError:
        if len(values) <= SMALL:
            return careful(values)
    step = max(SMALL, -(-len(values) // PARTS))
    pieces: list[pa.Array] = []
    bad: dict[int, str] = {}
    for start in range(0, len(values), step):
        piece = _decode(values.slice(start, step), whole, careful)
        pieces.append(piece.column)
        bad |= {start + row: reason for row, reason in piece.bad.items()}
    return Decoded(pa.concat_arrays(pieces), bad)
