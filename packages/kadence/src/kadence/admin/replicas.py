"""Replicas of partitions: elections of leaders (KIP-460) and where logs lie (KIP-113, KIP-827)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

from kadence.admin.arguments import Partitions, as_partitions, by_topic, several
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError, MalformedMessageError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol import error_codes as ec
from kadence.protocol.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kadence.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kadence.types import TopicPartition

__all__ = ["ElectionType", "LogDirDescription", "ReplicaInfo", "describe_log_dirs", "elect_leaders"]

ElectionType = Literal["preferred", "unclean"]
"""Which replica may become the leader: the first in the list of replicas, or any, even one that lacks records."""

_ELECTIONS: Final = {"preferred": 0, "unclean": 1}


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory of a broker.

    Attributes:
        size: bytes of its segments. offset_lag: how many offsets it is behind the high watermark; if ``is_future``,
            how many it is behind the replica that it will replace.
        is_future: once it has caught up, it replaces the replica in another directory of the same broker.
    """

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker.

    Attributes:
        error: the reason why the broker cannot use it; None: it can. replicas: those that are in it.
        total_bytes, usable_bytes: of its disk; None: the broker does not report them (before Kafka 3.3).
    """

    error: KafkaError | None
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None


@operation
def elect_leaders(
    calls: Calls, deadline: int, election_type: ElectionType, partitions: Partitions | None = None
) -> Waits[Outcomes[TopicPartition, None]]:
    """Let partitions elect a leader (KIP-460), such as after a broker came back.

    If an election is not possible now, that is an error: the call does not try again.

    Args:
        election_type: "preferred": the first of the partition's replicas becomes the leader. "unclean", for
            partitions without a leader: any replica may become it, even one that lacks records. These records are
            lost.
        partitions: None: all that need an election.

    Returns:
        The partitions that have elected, and of those that were named the ones that needed no election.

    Raises:
        BrokerError: PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE: no broker that runs has such a
            replica.
    """
    if election_type not in _ELECTIONS:
        raise ValueError(f"election_type is one of {', '.join(_ELECTIONS)}, not {election_type!r}")
    wanted = None if partitions is None else as_partitions(partitions)

    def attempt(deadline: int) -> Waits[Outcomes[TopicPartition, None]]:
        message = ElectLeadersRequest(
            election_type=_ELECTIONS[election_type],
            topic_partitions=None
            if wanted is None
            else [TopicPartitions(topic, indexes) for topic, indexes in by_topic(wanted).items()],
            timeout_ms=calls.left_ms(deadline),
        )
        controller = yield from calls.controller(deadline)
        # Version 0 knows preferred replicas alone.
        least = 0 if election_type == "preferred" else 1
        answer = yield from calls.ask(Ask(message, controller, min_version=least), deadline)
        if answer.error_code:
            raise refusal(answer.error_code, "elections")
        return _elected(answer, wanted or ())

    return calls.settle_one(attempt, deadline)


def _elected(
    answer: ElectLeadersResponse, wanted: Collection[TopicPartition]
) -> Outcomes[TopicPartition, None]:
    outcomes: Outcomes[TopicPartition, None] = Outcomes()
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            tp = TopicPartition(topic.topic, each.partition_id)
            if each.error_code in (ec.NONE, ec.ELECTION_NOT_NEEDED):
                outcomes[tp] = None
            elif each.error_code == ec.NOT_CONTROLLER:
                raise refusal(each.error_code, tp, each.error_message)
            else:
                outcomes.errors[tp] = refusal(each.error_code, tp, each.error_message)
    for tp in wanted:
        if tp not in outcomes and tp not in outcomes.errors:
            outcomes.errors[tp] = MalformedMessageError(f"the broker's answer lacks {tp}")
    return outcomes


@operation
def describe_log_dirs(
    calls: Calls, deadline: int, brokers: int | Iterable[int] | None = None
) -> Waits[Outcomes[int, dict[str, LogDirDescription]]]:
    """The log directories of brokers by their paths, with the size of each replica in them.

    Args:
        brokers: ids of brokers; None: all that run.

    Returns:
        The directories of each broker.

    Raises:
        BrokerError: BROKER_NOT_AVAILABLE: no such broker runs. CLUSTER_AUTHORIZATION_FAILED.
    """
    named = None if brokers is None else several(brokers, (int,), "brokers are named by their ids")

    def attempt(
        ids: Collection[int], deadline: int
    ) -> Waits[dict[int, dict[str, LogDirDescription] | KafkaError]]:
        known = yield from calls.metadata([], deadline)
        running = {broker.node_id for broker in known.brokers}
        found: dict[int, dict[str, LogDirDescription] | KafkaError] = {
            each: refusal(ec.BROKER_NOT_AVAILABLE, f"broker {each}") for each in ids if each not in running
        }
        asked = [each for each in ids if each in running]
        answers = yield from calls.ask_all(
            [Ask(DescribeLogDirsRequest(topics=None), each) for each in asked], deadline
        )
        for each, answer in zip(asked, answers, strict=True):
            found[each] = answer if isinstance(answer, KafkaError) else _log_dirs(each, answer)
        return found

    if named is None:
        response = yield from calls.settle_one(lambda deadline: calls.metadata([], deadline), deadline)
        named = sorted(broker.node_id for broker in response.brokers)
    return (yield from calls.settle(named, attempt, deadline))


def _log_dirs(broker: int, answer: DescribeLogDirsResponse) -> dict[str, LogDirDescription] | KafkaError:
    if answer.error_code:
        return refusal(answer.error_code, f"broker {broker}")
    if not answer.results:
        # Before version 3 an answer has no error of its own.
        return refusal(ec.CLUSTER_AUTHORIZATION_FAILED, f"broker {broker}")
    return {each.log_dir: _log_dir(each) for each in answer.results}


def _log_dir(found: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        refusal(found.error_code, f"log directory {found.log_dir!r}") if found.error_code else None,
        {
            TopicPartition(topic.name, each.partition_index): ReplicaInfo(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in found.topics
            for each in topic.partitions
        },
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
    )
