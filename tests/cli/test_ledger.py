"""The demo's accounts."""

from __future__ import annotations

import pytest

from kadence.cli.demo.ledger import Ledger


@pytest.fixture
def ledger() -> Ledger:
    return Ledger({0: 10, 1: 5, 2: 0})


def test_every_record_counts_once(ledger: Ledger) -> None:
    ledger.processed("a", 0, 0, 5, at=1)
    ledger.processed("b", 0, 4, 9, at=2)
    assert (ledger.total, ledger.distinct, ledger.repeated, ledger.missing) == (15, 10, 2, 5)
    assert ledger.by_member == {"a": 6, "b": 6}
    assert ledger.left([0, 1, 2]) == 5
    ledger.processed("b", 1, 0, 4, at=3)
    assert ledger.missing == 0


def test_offsets_that_were_never_produced(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="partition 1 has no offsets 4 to 5, only 5"):
        ledger.processed("a", 1, 4, 5, at=1)


def test_the_partitions_of_a_killed_member_wait(ledger: Ledger) -> None:
    ledger.owns("a", [0, 2], "id-a")
    ledger.owns("b", [1], "id-b")
    assert ledger.busiest() == ["a", "b"]
    assert ledger.busiest(but=["a"]) == ["b"]
    ledger.processed("a", 0, 0, 3, at=50)
    assert ledger.killed("a", at=100) == {0}, "partition 2 is empty, so nobody waits for it"
    assert ledger.orphaned == {0}
    assert ledger.waited_ms == {}
    ledger.processed("b", 0, 3, 5, at=700)
    ledger.processed("b", 0, 6, 9, at=900)
    assert ledger.waited_ms == {0: 600}
    assert ledger.killed("nobody", at=1) == frozenset()


def test_partitions_are_shared_out_when_each_has_an_owner(ledger: Ledger) -> None:
    ledger.owns("a", [0, 1, 2], "id-a")
    assert not ledger.is_shared_out(2), "b has not joined"
    ledger.owns("b", [], "id-b")
    ledger.owns("a", [0], "id-a")
    assert not ledger.is_shared_out(2), "nobody has 1 and 2 yet"
    ledger.owns("b", [1, 2], "id-b")
    assert ledger.is_shared_out(2)


def test_member_ids(ledger: Ledger) -> None:
    for member_id in ("", "id-1", "id-1", "id-2"):
        ledger.owns("a", [0], member_id)
    assert ledger.ids == {"a": ["id-1", "id-2"]}


def test_rebalances_by_generation(ledger: Ledger) -> None:
    def event(cause: str, generation: int, started_at: int, ended_at: int, added: int) -> dict[str, object]:
        return {
            "cause": cause,
            "generation": generation,
            "started_at": started_at,
            "ended_at": ended_at,
            "assigned": [0, 1],
            "added": [0] * added,
            "removed": [],
        }

    ledger.rebalanced("a", event("first join", 2, 100, 200, 2))
    ledger.rebalanced("b", event("the coordinator asked", 2, 90, 210, 0))
    ledger.rebalanced("a", event("first join", 1, 10, 20, 1))
    one, two = ledger.rebalances()
    assert (one.generation, two.generation) == (1, 2)
    assert (two.started_at, two.ended_at) == (90, 210)
    assert two.causes == ["first join", "the coordinator asked"]
    assert two.members == {"a": (2, 2, 0), "b": (2, 0, 0)}
