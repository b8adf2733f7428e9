"""Consumers between tasks."""

from __future__ import annotations

import os
from functools import partial

import pytest
from tests.spark.source.memory import MemoryRecords

from kadence_spark.pool import MAX_IDLE, MAX_IDLE_MS, Pool
from kadence_testing.clock import FakeClock


def connect() -> MemoryRecords:
    return MemoryRecords({})


def _same(client: MemoryRecords) -> MemoryRecords:
    return client


def refuse() -> MemoryRecords:
    raise AssertionError("a parked one was expected")


def test_a_parked_consumer_is_used_again_for_the_same_key() -> None:
    pool: Pool[MemoryRecords] = Pool()
    with pool.borrow("a", connect) as first:
        assert len(pool) == 0
    with pool.borrow("a", refuse) as again:
        assert again is first
        with pool.borrow("a", connect) as second:  # while the first is out
            assert second is not first
    with pool.borrow("b", connect) as other:
        assert other not in (first, second)
    assert len(pool) == 3


def test_after_a_failure_it_is_closed() -> None:
    pool: Pool[MemoryRecords] = Pool()
    client = connect()
    with pytest.raises(ValueError), pool.borrow("a", lambda: client):
        raise ValueError
    assert (client.parked, client.closed, len(pool)) == (0, 1, 0)


def test_one_that_cannot_be_parked_is_closed_without_failing_the_task() -> None:
    class Unparkable(MemoryRecords):
        def park(self) -> None:
            raise OSError("gone")

        def close(self) -> None:
            super().close()
            raise OSError("gone")

    pool: Pool[MemoryRecords] = Pool()
    client = Unparkable({})
    with pool.borrow("a", lambda: client):
        pass
    assert (client.closed, len(pool)) == (1, 0)


def test_not_too_many_and_not_for_ever() -> None:
    clock = FakeClock()
    pool: Pool[MemoryRecords] = Pool(clock)
    clients = [connect() for _ in range(MAX_IDLE + 1)]
    for number, client in enumerate(clients):
        with pool.borrow(number, partial(_same, client)):
            pass
    assert len(pool) == MAX_IDLE
    assert [client.closed for client in clients] == [1] + [0] * MAX_IDLE
    clock.advance(MAX_IDLE_MS + 1)
    with pool.borrow(1, connect) as fresh:
        assert fresh is not clients[1]
    assert all(client.closed for client in clients)
    pool.close()
    assert len(pool) == 0


def test_passwords_of_a_parked_client_are_not_shown() -> None:
    pool: Pool[MemoryRecords] = Pool()
    with pool.borrow((("sasl.password", "hush"),), connect):
        pass
    assert "hush" not in repr(vars(pool))


def test_a_forked_child_leaves_its_parents_consumers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pool: Pool[MemoryRecords] = Pool()
    with pool.borrow("a", connect) as parents:
        pass
    child = os.getpid() + 1
    monkeypatch.setattr("kadence_spark.pool.os.getpid", lambda: child)
    with pool.borrow("a", connect) as own:
        assert own is not parents
    assert isinstance(parents, MemoryRecords)
    assert parents.closed == 0
