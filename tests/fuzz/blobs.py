"""What members of a group tell each other through the broker: subscriptions, assignments, the sticky assignor's bytes.

A subscription comes from any client of the group. Its leader says which member's cannot be read, or assigns; the
coordinator looks into it without depending on it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from itertools import pairwise
from typing import Any, Final

from tests.fuzz.full import full
from tests.fuzz.target import Target
from tests.protocol.values import cases

from kadence.consumer.assignors.base import LastAssignment, MemberSubscription, Topics
from kadence.consumer.assignors.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kadence.consumer.assignors.stateless import RangeAssignor, RoundRobinAssignor
from kadence.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from kadence.protocol import registry
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.types import TopicPartition
from kadence.wire import WireError
from kadence.work.frontier import Frontier, _check, decode, done_above, encode
from kadence_broker.coordinator.consumer.embedded import BadMetadataError, subscription

__all__ = ["ASSIGNMENTS", "COMMITS", "STICKY", "SUBSCRIPTIONS"]

_TOPICS: Final = Topics({"t": 3, "u": 1})
_OTHER: Final = MemberSubscription(frozenset(("t", "u")), (TopicPartition("t", 1),), 3)
_ASSIGNORS: Final = (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())


def _seeds(kind: type[Any]) -> list[bytes]:
    return [
        registry.encode_versioned(full(case), case.version) for case in cases() if case.python is kind
    ] + [registry.encode_versioned(kind(), version) for version in range(kind.MAX_VERSION + 1)]


def _subscription_seeds() -> list[bytes]:
    claims = LastAssignment(frozenset((TopicPartition("t", 0), TopicPartition("u", 0))), 3)
    return _seeds(ConsumerProtocolSubscription) + [
        encode_subscription(MemberSubscription(frozenset("tu"), tuple(claims.partitions), 3, user_data, "r"))
        for user_data in (
            StickyAssignor().user_data(claims),
            CooperativeStickyAssignor().user_data(claims),
            None,
        )
    ]


def _read_subscription(data: bytes) -> object:
    broker = _as_coordinator(data)
    try:
        said = decode_subscription(data)
    except WireError as error:
        assert broker is None
        return error
    assert broker is not None
    assert said.topics == frozenset(broker.topics)
    again = decode_subscription(encode_subscription(said))
    assert sorted(again.owned) == sorted(said.owned)
    assert (again.topics, again.user_data) == (said.topics, said.user_data)
    _assign(said)
    return said


def _as_coordinator(data: bytes) -> ConsumerProtocolSubscription | None:
    try:
        return subscription(data)
    except BadMetadataError:
        return None


def _assign(said: MemberSubscription) -> None:
    """Whatever one member said, each partition that somebody reads goes to one who reads it."""
    members = {"fuzzed": said, "other": _OTHER}
    for assignor in _ASSIGNORS:
        made = assignor.assign(_TOPICS, members)
        given = [(each, member) for member, some in made.items() for each in some]
        assert len({each for each, _ in given}) == len(given)
        for each, member in given:
            assert each.topic in members[member].topics
            assert 0 <= each.partition < _TOPICS[each.topic]
        for some in made.values():
            assert sorted(decode_assignment(encode_assignment(some))) == sorted(some)


def _read_sticky(data: bytes) -> object:
    said = MemberSubscription(frozenset(("t",)), user_data=data)
    _assign(said)
    return said


def _read_assignment(data: bytes) -> object:
    try:
        given = decode_assignment(data)
    except WireError as error:
        return error
    assert decode_assignment(encode_assignment(given)) == sorted(given)
    return given


_OFFSET: Final = 100
_RUNS: Final = ([(102, 103)], [(101, 150), (160, 10_000)], [(at, at + 1) for at in range(102, 400, 2)])


def _read_commit(data: bytes) -> object:
    """Metadata of a commit as it is, and with a true checksum: whoever may commit for the group writes both."""
    text = data.decode("latin-1")
    found = []
    for metadata in (text, _with_check(text)):
        runs = decode(_OFFSET, metadata)
        assert all(_OFFSET <= start <= end < 1 << 63 for start, end in runs)
        assert all(one[1] <= other[0] for one, other in pairwise(runs))
        assert done_above(_OFFSET, metadata) == sum(end - start for start, end in runs)
        frontier = Frontier(runs, _OFFSET)
        for offset in range(_OFFSET, _OFFSET + 20):
            if frontier.give(offset, 0) and offset % 5:
                frontier.done(offset)
        frontier.log_ends(_OFFSET + 20)
        assert frontier.offset == _OFFSET
        assert decode(_OFFSET, frontier.metadata()) == list(frontier.runs())
        found += runs
    return found or None


def _with_check(metadata: str) -> str:
    mark, text = metadata[:15], metadata[15:]
    try:
        body = b64decode(text + "=" * (-len(text) % 4))[4:]
    except ValueError:
        return metadata
    return mark + b64encode(_check(_OFFSET, body) + body).decode()


SUBSCRIPTIONS: Final = Target(
    "subscriptions", _subscription_seeds, _read_subscription, allocation=(600, 60_000), share=50_000
)
STICKY: Final = Target(
    "sticky",
    lambda: [
        StickyAssignor().user_data(LastAssignment(frozenset((TopicPartition("t", 0),)), 3)) or b"",
        CooperativeStickyAssignor().user_data(LastAssignment(frozenset(), 3)) or b"",
    ],
    _read_sticky,
    allocation=(600, 60_000),
    share=4_000,
)
ASSIGNMENTS: Final = Target(
    "assignments",
    lambda: _seeds(ConsumerProtocolAssignment),
    _read_assignment,
    allocation=(600, 20_000),
    share=120_000,
)
COMMITS: Final = Target(
    "commits",
    lambda: [encode(_OFFSET, runs).encode() for runs in _RUNS],
    _read_commit,
    share=20_000,
    allocation=(200, 60_000),
)
