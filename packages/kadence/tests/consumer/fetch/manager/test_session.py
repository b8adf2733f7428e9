"""Incremental fetch sessions (KIP-227): the smallest request that leaves both sides with the same list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kadence.consumer.fetch.manager.session import FetchSession, SessionPlan
from kadence.consumer.shared_state import Wanted
from kadence.types import TopicPartition

ID, OTHER_ID = b"1" * 16, b"2" * 16
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def want(offset: int, topic_id: bytes = ID) -> Wanted:
    return Wanted(1, offset, 0, topic_id, 1000)


def planned(session: FetchSession, wanted: dict[TopicPartition, Wanted]) -> SessionPlan:
    """Bring the session to exactly this."""
    for partition in set(session.wanted) - set(wanted):
        session.drop(partition)
    for partition, each in wanted.items():
        session.want(partition, each)
    return session.plan()


def test_the_first_fetch_is_full_and_asks_for_a_session() -> None:
    plan = planned(FetchSession(), {A: want(0), B: want(5)})
    assert (plan.session_id, plan.epoch) == (0, 0)
    assert list(plan.send) == [A, B]
    assert not plan.forget


def test_later_fetches_name_only_what_changed() -> None:
    session = FetchSession()
    planned(session, {A: want(0), B: want(5)})
    session.answered(77)
    plan = planned(session, {A: want(9), B: want(5)})
    assert (plan.session_id, plan.epoch) == (77, 1)
    assert plan.send == {A: want(9)}
    session.answered(77)
    plan = planned(session, {B: want(5)})
    assert (plan.epoch, plan.send, plan.forget) == (2, {}, {A: ID})


def test_a_recreated_topic_is_forgotten_and_sent_anew() -> None:
    session = FetchSession()
    planned(session, {A: want(0)})
    session.answered(1)
    plan = planned(session, {A: want(0, OTHER_ID)})
    assert plan.forget == {A: ID}
    assert plan.send == {A: want(0, OTHER_ID)}


def test_a_failure_closes_the_session_and_opens_a_new_one() -> None:
    session = FetchSession()
    planned(session, {A: want(0)})
    session.answered(7)
    session.failed()
    plan = planned(session, {A: want(0)})
    assert (plan.session_id, plan.epoch, plan.send) == (7, 0, {A: want(0)})
    session.restart()
    assert planned(session, {A: want(0)}).session_id == 0


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession()
    planned(session, {A: want(0)})
    session.answered(7)
    session._epoch = 2**31 - 1
    session.answered(7)
    assert planned(session, {A: want(0)}).epoch == 1


WANTED = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 3)),
    st.builds(want, st.integers(0, 3), st.sampled_from([ID, OTHER_ID])),
)


@given(st.lists(st.tuples(WANTED, st.sampled_from(["ok", "ok", "fail", "unknown", "none"]))))
def test_the_brokers_copy_always_ends_up_as_what_is_wanted(
    steps: list[tuple[dict[TopicPartition, Wanted], str]],
) -> None:
    session = FetchSession()
    broker: dict[TopicPartition, Wanted] = {}
    for wanted, outcome in steps:
        plan = planned(session, wanted)
        if plan.epoch == 0:
            broker = {}
        for partition in plan.forget:
            del broker[partition]
        broker.update(plan.send)
        assert broker == wanted
        if outcome == "ok":
            session.answered(7)
        elif outcome == "none":
            session.answered(0)
        elif outcome == "fail":
            session.failed()
        else:
            session.restart()
