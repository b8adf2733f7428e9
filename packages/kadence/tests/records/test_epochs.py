"""Leader epochs of fetched batches, by their headers alone."""

from __future__ import annotations

from kadence.records import assign_offsets, encode_batch, first_epoch, leader_epochs


def batch(offset: int, count: int, epoch: int) -> bytes:
    raw = bytearray(encode_batch([(0, None, b"v", ())] * count, base_offset=offset))
    assign_offsets(raw, offset, epoch)
    return bytes(raw)


def test_each_epoch_with_the_offset_of_its_first_batch() -> None:
    data = memoryview(batch(10, 2, 3) + batch(12, 1, 3) + batch(13, 4, 7) + batch(20, 1, 8))
    assert first_epoch(data) == 3
    assert leader_epochs(data) == [(3, 10), (7, 13), (8, 20)]


def test_batches_without_an_epoch_tell_none() -> None:
    data = memoryview(batch(0, 2, -1))
    assert (first_epoch(data), leader_epochs(data)) == (-1, [])


def test_a_header_that_cannot_be_true_ends_the_walk() -> None:
    whole = batch(0, 2, 1)
    damaged = bytearray(batch(2, 2, 2))
    damaged[8:12] = (3).to_bytes(4, "big")
    assert leader_epochs(memoryview(whole + bytes(damaged) + batch(4, 1, 3))) == [(1, 0)]
    assert leader_epochs(memoryview(whole + batch(2, 2, 2)[:30])) == [(1, 0)]
