"""Kafka's rules for records of share groups, as the simulation has written them down."""

from __future__ import annotations

from dataclasses import replace

from kadence_broker.share.delivery import RecordState
from kadence_testing.simulation.share_rules import (
    ACCEPT,
    FRESH,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Circumstances,
    Said,
    Slot,
    may_become,
)

AVAILABLE, ACQUIRED, ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
AROUND = Circumstances(now=100, lock_ms=30, limit=2, has_dead_letters=False, renews=True)
HELD = Slot(ACQUIRED, 1, "a", 120)


def after(slot: Slot, kind: int, member: str = "a", *, is_sure: bool = True) -> set[Slot]:
    return may_become(slot, [Said(member, kind, is_sure)], AROUND)


def test_nothing_happens_to_a_record_without_a_reason() -> None:
    for slot in (FRESH, HELD, Slot(ACKNOWLEDGED, 1), Slot(RecordState.ARCHIVED, 2)):
        assert may_become(slot, [], AROUND) == {slot}


def test_a_fetch_raises_the_count_and_locks() -> None:
    around = replace(AROUND, readers=frozenset({"a"}))
    assert may_become(FRESH, [], around) == {FRESH, Slot(ACQUIRED, 1, "a", 130)}
    assert may_become(HELD, [], around) == {HELD}


def test_what_the_holder_says() -> None:
    assert after(HELD, ACCEPT) == {Slot(ACKNOWLEDGED, 1)}
    assert after(HELD, REJECT) == after(HELD, GAP) == {Slot(RecordState.ARCHIVED, 1)}
    assert after(HELD, RELEASE) == {Slot(AVAILABLE, 1)}
    assert after(HELD, RENEW) == {HELD._replace(ends=130)}


def test_a_release_at_the_limit_archives() -> None:
    assert after(HELD._replace(deliveries=2), RELEASE) == {Slot(RecordState.ARCHIVED, 2)}


def test_a_dead_letter_comes_before_the_end() -> None:
    around = replace(AROUND, has_dead_letters=True)
    found = may_become(HELD, [Said("a", REJECT, True)], around)
    assert {slot.state for slot in found} == {RecordState.ARCHIVING, RecordState.ARCHIVED}


def test_nobody_else_says_anything() -> None:
    assert after(HELD, ACCEPT, "b", is_sure=False) == {HELD}


def test_a_word_that_may_have_come_too_late() -> None:
    late = HELD._replace(ends=100)
    assert after(late, ACCEPT, is_sure=False) == {late, Slot(AVAILABLE, 1), Slot(ACKNOWLEDGED, 1)}


def test_the_end_of_a_session_releases() -> None:
    around = replace(AROUND, gone=frozenset({"a"}))
    assert may_become(HELD, [], around) == {HELD, Slot(AVAILABLE, 1)}


def test_a_renewal_where_the_group_allows_none() -> None:
    assert may_become(HELD, [Said("a", RENEW, False)], replace(AROUND, renews=False)) == {HELD}


def test_what_nobody_can_read_is_archived() -> None:
    assert Slot(RecordState.ARCHIVED, 0) in may_become(FRESH, [], AROUND, is_hole=True)
