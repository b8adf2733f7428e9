"""format string: UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.columns.isolation import Decoded, WholeRefusedError, decode_isolating

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TextFormat", "texts_of"]


def texts_of(values: pa.Array) -> pa.Array:
    """Bytes as texts, without a copy.

    Raises:
        WholeRefusedError: one is not UTF-8.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        raise WholeRefusedError from None


class TextFormat:
    """Makes strings of bytes."""

    def decode(self, values: pa.Array) -> Decoded:
        return decode_isolating(values, texts_of, _one_by_one)


def _one_by_one(values: pa.Array) -> Decoded:
    import pyarrow as pa

    found: list[str | None] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            found.append(value.decode())
        except UnicodeDecodeError as problem:
            found.append(None)
            bad[row] = f"not UTF-8: byte {problem.start}"
    return Decoded(pa.array(found, pa.string()), bad)
