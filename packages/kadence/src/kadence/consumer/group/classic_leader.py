"""The group leader's work between JoinGroup and SyncGroup: get the topics, run the assignor, encode the result.

The assignor runs on the helper thread: a large group takes a while, a custom assignor may take any time, and
heartbeats must go on meanwhile. The topics that it ran with are kept, because the leader asks for a new rebalance when
they change.

Collects the user data of this member's assignors for the leader's assignor, before each JoinGroup.

Kafka's own assignors answer at once. Assignors of users may take any time, so they are called on the helper thread.
The join waits for them; heartbeats do not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kadence.client.request_manager import Jobs
from kadence.clock import FOREVER, add_ms
from kadence.consumer.assignors import BUILT_IN, LastAssignment
from kadence.consumer.assignors.base import Assignor, MemberSubscription, RebalanceProtocol, Topics
from kadence.consumer.assignors.embedded import decode_subscription, encode_assignment
from kadence.consumer.assignors.sticky import generation_of, withhold
from kadence.consumer.group.membership import ClusterView
from kadence.errors import AssignorError, KafkaError, MalformedMessageError
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.protocol.join_group import JoinGroupResponseMember
from kadence.types import TopicPartition
from kadence.wire import WireError

if TYPE_CHECKING:
    from kadence.connection.cluster import Cluster


class UserData:
    """Collects the user data of this member's assignors before each JoinGroup.

    Attributes:
        last: this member's last assignment. result: user data by assignor, once available. error: the reason why there
            will be none.
    """

    def __init__(self, assignors: Iterable[Assignor], jobs: Jobs) -> None:
        self.last = LastAssignment()
        self.result: Mapping[str, bytes | None] | None = None
        self.error: KafkaError | None = None
        self._assignors = tuple(assignors)
        self._jobs = jobs
        self._attempt = 0
        self._asked = False

    def stop(self) -> None:
        """Forget the collected data: it belongs to the previous rebalance."""
        self._attempt += 1
        self._asked = False
        self.result = self.error = None

    def gather(self) -> None:
        """Start collecting, if that has not been done; the outcome is in `result` or `error`, now or later."""
        if self._asked:
            return
        self._asked = True
        if all(is_built_in(assignor) for assignor in self._assignors):
            self.result = self._gathered(self.last)
            return
        attempt, last = self._attempt, self.last

        def done(now: int, result: object, error: Exception | None) -> None:
            del now
            if attempt != self._attempt:
                return
            if error is None and isinstance(result, dict):
                self.result = result
            else:
                self.error = error if isinstance(error, AssignorError) else AssignorError(repr(error))

        self._jobs.submit(lambda: self._gathered(last), done)

    def _gathered(self, last: LastAssignment) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for assignor in self._assignors:
            try:
                data = assignor.user_data(last)
            except Exception as error:
                raise KafkaError(
                    f"the assignor {assignor.name!r} failed in user_data(): {error!r}"
                ) from error
            if data is not None and not isinstance(data, bytes):
                raise AssignorError(
                    f"the assignor {assignor.name!r} returned user data that are not bytes: {data!r}"
                )
            found[assignor.name] = data
        return found


def is_built_in(assignor: Assignor) -> bool:
    """Whether it is one of Kafka's, as implemented here: it neither blocks nor fails."""
    return type(assignor) in BUILT_IN.values()


log = logger("kadence.consumer")

_PASSING = error_codes.RETRIABLE - {error_codes.UNKNOWN_TOPIC_OR_PARTITION}

_NAMED = 5
"""How many members are named as changes in a group."""

_SLOW_MS = 10_000
"""An assignor that runs for this long (ms) is logged, once."""

_METADATA_PATIENCE_MS = 5_000
"""How long (ms) to wait for metadata of topics before assigning without them."""


class Leader:
    """One member's leadership, empty while it follows.

    Attributes:
        result: each member's assignment for SyncGroup, once available. error: the reason why there will be none.
            changes: members that joined and left since the previous generation, if this member led that one too; else
            "".
    """

    def __init__(self, metadata: ClusterView, jobs: Jobs) -> None:
        self.result: dict[str, bytes] | None = None
        self.error: KafkaError | None = None
        self.changes = ""
        self._before: frozenset[str] = frozenset()
        self._metadata = metadata
        self._jobs = jobs
        self._attempt = 0
        self._slow = ""
        self._slow_at = FOREVER
        self._assignor: Assignor | None = None
        self._members: dict[str, MemberSubscription] = {}
        self._topics: frozenset[str] = frozenset()
        self._wait_until = 0
        self._given: Topics | None = None
        self._seen: Cluster | None = None

    def stop(self) -> None:
        """A new rebalance began: a result that is still being computed is not needed."""
        self._attempt += 1
        self._slow_at = FOREVER
        self.result = self.error = None
        self._assignor, self._members, self._given, self._seen = None, {}, None, None

    def follow(self) -> None:
        """Not the leader (any more)."""
        self.stop()
        self._before = frozenset()
        if self._topics:
            self._topics = frozenset()
            self._metadata.want(frozenset())

    def lead(
        self,
        now: int,
        assignor: Assignor,
        members: Iterable[JoinGroupResponseMember],
        *,
        skip_assignment: bool,
    ) -> None:
        """Be the leader.

        ``skip_assignment``: the group keeps its assignment (KIP-814), and only its topics are watched.
        """
        self.stop()
        try:
            for member in members:
                self._members[member.member_id] = decode_subscription(
                    member.metadata, member.group_instance_id
                )
        except WireError as error:
            self.error = MalformedMessageError(
                f"member {member.member_id!r} of the group sent a subscription that cannot be read: {error}"
            )
            return
        self.changes = _changes(self._before, frozenset(self._members))
        self._before = frozenset(self._members)
        self._topics = frozenset().union(*(m.topics for m in self._members.values()))
        self._metadata.want(self._topics)
        if skip_assignment:
            self.result = {}
        else:
            self._assignor = assignor
            self._wait_until = add_ms(now, _METADATA_PATIENCE_MS)

    def poll(self, now: int) -> int:
        """Run the assignor as soon as the topics are known. Returns when to be polled again."""
        if self._assignor is None:
            return self._running(now)
        topics = _topics(self._metadata.cluster, self._topics)
        unknown = [topic for topic in self._topics if not _told(self._metadata.cluster, topic)]
        if unknown and now < self._wait_until:
            return self._wait_until
        assignor, members, attempt = self._assignor, self._members, self._attempt
        self._assignor, self._given, self._seen = None, topics, self._metadata.cluster
        self._slow, self._slow_at = assignor.name, add_ms(now, _SLOW_MS)

        def done(now: int, result: object, error: Exception | None) -> None:
            del now
            if attempt == self._attempt:
                self._computed(result, error)

        self._jobs.submit(lambda: _assign(assignor, topics, members), done)
        return self._slow_at

    def _running(self, now: int) -> int:
        """The assignor was started. If it never ends, the broker drops this member after the rebalance timeout."""
        if now >= self._slow_at:
            self._slow_at = FOREVER
            log.warning(
                "the assignor %r has been running for %d s; the whole group is waiting for it",
                self._slow,
                _SLOW_MS // 1_000,
            )
        return self._slow_at

    def _computed(self, result: object, error: Exception | None) -> None:
        if error is None and isinstance(result, dict):
            self.result = result
        else:
            self.error = error if isinstance(error, AssignorError) else AssignorError(repr(error))

    def topics_changed(self) -> list[str]:
        """Topics of the group whose partitions have changed since the assignment.

        A topic that is briefly missing from metadata is not a change; one that the cluster reports as deleted is. So
        are changed racks of its replicas, if members report theirs (KIP-881) and all of these brokers are known before
        and after: the restart of a broker is not a reason to rebalance.
        """
        cluster = self._metadata.cluster
        if not self._topics or cluster is self._seen:
            return []
        topics = _topics(cluster, self._topics)
        if self._given is None:
            # The assignment was skipped: assume that it was made with the topics as first seen.
            if all(_told(cluster, topic) for topic in self._topics):
                self._given, self._seen = topics, cluster
            return []
        self._seen = cluster
        return sorted(
            topic
            for topic in self._topics
            if _told(cluster, topic)
            and (topics.get(topic) != self._given.get(topic) or self._moved(topic, self._given, topics))
        )

    def _moved(self, topic: str, before: Topics, now: Topics) -> bool:
        if not any(said.rack for said in self._members.values()):
            return False
        return any(
            before.racks(partition)
            and now.racks(partition)
            and before.racks(partition) != now.racks(partition)
            for partition in (TopicPartition(topic, number) for number in range(now.get(topic, 0)))
        )


def _assign(
    assignor: Assignor,
    topics: Topics,
    members: Mapping[str, MemberSubscription],
) -> dict[str, bytes]:
    try:
        assignment = assignor.assign(copy.copy(topics), dict(members))
    except Exception as error:
        raise AssignorError(f"the assignor {assignor.name!r} failed: {error!r}") from error
    if not is_built_in(assignor):
        if wrong := _wrong(assignment, topics, members):
            raise AssignorError(f"the assignor {assignor.name!r} returned an invalid assignment: {wrong}")
        if RebalanceProtocol.COOPERATIVE in assignor.protocols:
            claims = {name: (said.owned, generation_of(said)) for name, said in members.items()}
            assignment = withhold(assignment, topics, claims)
    return {member: encode_assignment(assignment.get(member, ())) for member in members}


def _changes(before: frozenset[str], after: frozenset[str]) -> str:
    """By member id, which begins with the member's client.id; a restarted static member has a new one."""
    told = {"joined": after - before, "left": before - after} if before else {}
    return ", ".join(f"{what}: {_some(sorted(who))}" for what, who in told.items() if who)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _wrong(
    assignment: object, counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> str | None:
    """The error in a user-defined assignor's assignment; None if it is valid."""
    if not isinstance(assignment, Mapping):
        return f"{assignment!r} is not a dict of member ids to partitions"
    owners: dict[TopicPartition, str] = {}
    for member, partitions in assignment.items():
        if member not in members:
            return f"there is no member {member!r}"
        for partition in partitions if isinstance(partitions, Iterable) else (partitions,):
            if not isinstance(partition, TopicPartition):
                return f"{partition!r}, given to {member}, is not a TopicPartition"
            if not 0 <= partition.partition < counts.get(partition.topic, 0):
                return f"{partition}, given to {member}, does not exist"
            if partition.topic not in members[member].topics:
                return f"{partition} is given to {member}, which does not read {partition.topic!r}"
            if (other := owners.setdefault(partition, member)) != member:
                return f"{partition} is given to {other} and to {member}"
    return None


def _topics(cluster: Cluster, names: Iterable[str]) -> Topics:
    """The topics that exist. Racks of a partition are included only if those of all its replicas are known."""
    counts = {}
    racks = {}
    for name in names:
        topic = cluster.topics.get(name)
        if topic is None or not topic.partitions:
            continue
        counts[name] = len(topic.partitions)
        for info in topic.partitions:
            places = {node.rack if (node := cluster.nodes.get(each)) else None for each in info.replicas}
            if None not in places:
                racks[TopicPartition(name, info.partition)] = frozenset(filter(None, places))
    return Topics(counts, racks)


def _told(cluster: Cluster, name: str) -> bool:
    """Whether a broker has described the topic or reported that it does not exist, and not a temporary error."""
    topic = cluster.topics.get(name)
    return topic is not None and (bool(topic.partitions) or topic.error_code not in _PASSING)
