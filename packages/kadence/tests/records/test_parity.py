"""The decoder and a plain one give the same for the same bytes: random batches, then damaged ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples, seeds
from tests.records.batches import Row, batch, from_rows, marker, record
from tests.records.parity import OURS, PLAIN, both, buffers

T0 = 1_700_000_000_000
BIG = 9000

content = st.none() | st.binary(max_size=70) | st.integers(0, BIG).map(bytes)
names = st.binary(max_size=6) | st.text(max_size=6).map(str.encode)
header_lists = st.lists(st.tuples(names, st.none() | st.binary(max_size=80)), max_size=3).map(tuple)
times = st.integers(T0 - 10**6, T0 + 10**6) | st.integers(-(2**61), 2**61)


@st.composite
def partitions(draw: st.DrawFn) -> bytes:
    """A few batches in a row, with holes in the offsets, control batches and all attributes."""
    offset = draw(st.integers(0, 2**40))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        rows: list[Row] = []
        base = offset
        for _ in range(draw(st.integers(1, 12))):
            offset += draw(st.integers(0, 3) | st.just(10_000) if rows else st.just(0))
            rows.append(Row(offset, draw(times), draw(content), draw(content), draw(header_lists)))
            offset += 1
        offset += draw(st.integers(0, 2))
        parts.append(
            from_rows(
                rows,
                last_delta=offset - 1 - base,
                attributes=draw(st.sampled_from([0, 0x08, 0x10])),
                leader_epoch=draw(st.sampled_from([-1, 0, 7])),
                producer_id=draw(st.sampled_from([-1, 5])),
            )
        )
        if draw(st.booleans()):
            parts.append(marker(offset, 5, commit=draw(st.booleans())))
            offset += 1
    return b"".join(parts)


@given(partitions(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans())
@examples(35)
def test_random_batches(data: bytes, steps: list[int], read_committed: bool) -> None:
    first = int.from_bytes(data[:8], "big")
    options: dict[str, Any] = {"aborted": [(5, first)]} if read_committed else {}
    outcome = both(data, first, steps, strict=True, **options)
    assert outcome.errors == []
    both(data, first + 5, [10_000], strict=True, **options)


@given(partitions(), st.integers(1, 400))
@examples(30)
def test_bound_in_bytes(data: bytes, max_bytes: int) -> None:
    def pieces(kind: Any) -> list[Any]:
        reader = kind(data, "t", 1, 0)
        out = []
        while got := reader.take_columns(max_bytes=max_bytes):
            out += [buffers(one) for one in got]
        return out

    assert pieces(OURS) == pieces(PLAIN)


@given(partitions(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=5))
@examples(60)
def test_damaged_batches(data: bytes, damage: list[tuple[int, int]]) -> None:
    """Without checksums every lie reaches the parsers: both refuse the same ones, after the same records."""
    broken = bytearray(data)
    for place, byte in damage:
        broken[place % len(broken)] = byte
    both(bytes(broken), int.from_bytes(data[:8], "big"), [3, 7], strict=False)


def test_damage_in_a_batch_that_a_cursor_goes_on_to_by_itself() -> None:
    one, other = (from_rows([Row(offset, T0, b"k", b"v", ())], last_delta=0) for offset in range(2))
    # The last record says that it has a header, and ends.
    broken = other[:-1] + b"\x02"
    outcome = both(one + broken, 0, [7], strict=False)
    assert {size for _, _, size in outcome.ends} == {len(one + other)}


@given(st.binary(max_size=60), st.integers(0, 6), st.integers(0, 2**31 - 1))
@examples(100)
def test_noise_in_place_of_records(noise: bytes, count: int, last_delta: int) -> None:
    both(batch(noise, count, last_delta=last_delta), 0, [2], strict=True)


@pytest.mark.parametrize("seed", seeds(10))
def test_damage_inside_one_record(seed: int) -> None:
    """Every byte of a small batch's records set to many values: what the random search may miss."""
    dice = random.Random(seed)
    rows = [(i, dice.randrange(-100, 100), dice.randbytes(dice.randrange(4)), None) for i in range(2)]
    body = b"".join(record(*row, [(b"h", b"x")] if row[0] else []) for row in rows)
    for at in range(len(body)):
        for byte in (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, dice.randrange(256)):
            broken = body[:at] + bytes((byte,)) + body[at + 1 :]
            both(batch(broken, 2), 0, [5], strict=True)
