"""Sends the last request of memberships that are over, while the next one may already begin.

Each group protocol decides what the leave request contains and whether one is sent.

Each departure carries its own identity, so it does not depend on the member's next steps. It is repeated until the
coordinator has confirmed it, or until the session would have ended anyway. A JoinGroup without a member id that is
still on its way when the member leaves would create a phantom member (KIP-394): its response is awaited, and the id in
it leaves.

Also the errors of a member that a group refuses permanently, and of failed commits: the given value, the allowed ones,
and the remedy.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from typing import Any, Final

from kadence import errors
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, ConnectionPurpose, Request
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import GroupConfig
from kadence.errors import CommitFailedError, KafkaError
from kadence.errors.remedies import Remedy, remedy_of_code
from kadence.lazy_dataclasses import dataclass
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, TopicPartition

__all__ = [
    "IDENTITY",
    "PARTITIONS_GO",
    "Departure",
    "Departures",
    "error_of",
    "expelled",
    "explain",
    "explain_classic_members",
    "explain_heartbeat",
    "explain_heartbeat_transport",
    "explain_transport",
    "not_ours",
    "outsider",
    "warn_of_silence",
]

log = logger("kadence.consumer")

_REASON_MAX: Final = 255


@dataclass(slots=True, eq=False)
class Departure:
    """One departure, until the coordinator has confirmed it."""

    member_id: str
    reason: str
    ends_at: int
    backoff: Backoff
    joining: Request | None = None
    """The join whose response brings the member id."""
    instance_id: str | None = None
    sent: Request | None = None


class Departures(abc.ABC):
    """All memberships of this consumer that have ended without the coordinator's confirmation."""

    def __init__(self, config: GroupConfig, coordinator: CoordinatorRequestManager) -> None:
        self._config = config
        self._coordinator = coordinator
        self._waiting: list[Departure] = []
        self.goodbye: bool | None = None
        """Whether to leave for good (KIP-1092); None: dynamic members do, and static ones keep their place."""

    @property
    def done(self) -> bool:
        return not self._waiting

    @property
    def said(self) -> bool:
        """Whether each departure was sent."""
        return all(departure.sent is not None for departure in self._waiting)

    def add(
        self, now: int, group: GroupMetadata, joining: Request | None, reason: str, *, awaited: bool = False
    ) -> None:
        """End this membership, if the coordinator may know it.

        Args:
            group: its identity. joining: the join under way, which will bring a member id if it has none.
            awaited: the application waits for the confirmation, but not for a silent coordinator.
        """
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        patience = self._config.session_timeout_ms
        if awaited:
            # The other half of the time was for the commit before.
            patience = min(patience, self._config.request_timeout_ms // 2)
        ends_at = add_ms(now, patience)
        self._waiting.append(
            Departure(
                group.member_id,
                reason[:_REASON_MAX],
                ends_at,
                backoff,
                None if group.member_id else joining,
                instance_id=group.group_instance_id,
            )
        )

    def poll(self, now: int) -> Poll:
        if not self._waiting:
            return NOTHING
        before = len(self._waiting)
        self._waiting = [departure for departure in self._waiting if now < departure.ends_at]
        requests: list[Request] = []
        # A static member's join waits for this, and may have had its turn in this poll already.
        wake_at = now if len(self._waiting) < before else FOREVER
        for departure in self._waiting:
            wake_at = min(wake_at, departure.ends_at)
            if departure.joining is not None or departure.sent is not None:
                continue
            node_id = self._coordinator.node_id
            if node_id is None:
                wake_at = min(wake_at, self._coordinator.require(now))
            elif now < departure.backoff.until:
                wake_at = min(wake_at, departure.backoff.until)
            else:
                departure.sent = self._request(now, node_id, departure)
                requests.append(departure.sent)
        return Poll(requests, wake_at)

    @abc.abstractmethod
    def _goodbye(self, departure: Departure) -> Any:
        """The leave request."""

    def _code(self, answer: Any) -> int:
        """The coordinator's response to it."""
        code: int = answer.error_code
        return code

    def _request(self, now: int, node_id: int, departure: Departure) -> Request:
        return Request(
            self._goodbye(departure),
            node_id,
            min(add_ms(now, self._config.request_timeout_ms), departure.ends_at),
            ConnectionPurpose.GROUP,
        )

    def on_response(self, now: int, completed: Completed) -> None:
        departure = next((d for d in self._waiting if d.sent is completed.request), None)
        if departure is None:
            return
        departure.sent = None
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if completed.error.retriable:
                departure.backoff.failed(now)
            else:
                self._waiting.remove(departure)
            return
        code = self._code(completed.response)
        self._coordinator.check(now, completed.request.node_id, code)
        if code in error_codes.RETRIABLE:
            departure.backoff.failed(now)
            return
        self._waiting.remove(departure)
        log.info(
            "group %s: member %s left (%s)%s",
            self._config.group_id,
            departure.member_id,
            departure.reason,
            f": {error_codes.name(code)}" if code else "",
        )


PARTITIONS_GO: Final = "Its partitions go to other members"


def warn_of_silence(group: GroupMetadata, timeout_ms: int, loss: str = PARTITIONS_GO) -> None:
    """Log that this member leaves, because nothing was polled for the processing timeout.

    The coordinator keeps the partitions of a static member until its session ends.

    Args:
        loss: what it loses.
    """
    log.warning(
        "group %s: member %s leaves: nothing was polled for %d ms (max.poll.interval.ms). %s%s. Poll more often, "
        "process less per poll (max.poll.records), or raise max.poll.interval.ms",
        group.group_id,
        group.member_id,
        timeout_ms,
        loss,
        "" if group.group_instance_id is None else " when its session has ended",
    )


_NO_KIP_848 = (
    "the broker does not speak KIP-848's group protocol (Kafka 4.0 does; in 3.7 to 3.9 it is switched on by "
    "group.coordinator.rebalance.protocols): set group.protocol=classic for it"
)


def explain(code: int, group_id: str, assignors: tuple[str, ...], config: GroupConfig) -> KafkaError:
    """The error for the code of a refused JoinGroup, SyncGroup or Heartbeat."""
    texts = {
        error_codes.INCONSISTENT_GROUP_PROTOCOL: (
            f"the members of group {group_id!r} share no assignor with this one, which offers "
            f"{', '.join(assignors)}. Java's consumer offers range and cooperative-sticky by default, librdkafka "
            "range and roundrobin: to join such a group, name what they use in partition.assignment.strategy, "
            "e.g. 'range' or 'cooperative-sticky,range'. To change the assignor of a running group, restart its "
            "members one by one twice: first with both, the new one in front ('cooperative-sticky,range'), then with "
            "the new one alone. It may also be that the group id belongs to something other than consumers"
        ),
        error_codes.INVALID_SESSION_TIMEOUT: (
            f"session.timeout.ms = {config.session_timeout_ms} is outside the broker's bounds "
            "(group.min.session.timeout.ms and group.max.session.timeout.ms, 6 s to 30 min by default)"
        ),
        error_codes.GROUP_MAX_SIZE_REACHED: (
            f"group {group_id!r} has as many members as the broker allows (group.max.size)"
        ),
        error_codes.FENCED_INSTANCE_ID: (
            f"another process joined group {group_id!r} with group.instance.id = {config.group_instance_id!r}; "
            "each process needs its own"
        ),
        error_codes.GROUP_AUTHORIZATION_FAILED: f"not allowed to read as group {group_id!r}",
        error_codes.INVALID_GROUP_ID: f"the broker does not accept group.id = {group_id!r}",
    }
    return errors.for_code(code, texts.get(code))


def explain_transport(error: KafkaError, config: GroupConfig) -> KafkaError:
    """The same for an error without a response: static membership is the one feature that an old broker may lack."""
    if isinstance(error, errors.UnsupportedVersionError) and config.group_instance_id is not None:
        return errors.UnsupportedVersionError(
            f"{error}; static membership needs JoinGroup v5 (Kafka 2.3): unset group.instance.id for this broker"
        )
    return error


def explain_heartbeat(
    code: int, message: str | None, group_id: str, config: GroupConfig, regex: str | None = None
) -> KafkaError:
    """The error for the code of a refused ConsumerGroupHeartbeat.

    Args:
        message: the broker's own text. regex: the subscription's, if it is a `SubscriptionPattern`.
    """
    told = f": {message.rstrip('.')}" if message else ""
    texts = {
        error_codes.UNSUPPORTED_VERSION: _no_kip_848(regex),
        error_codes.INVALID_REGULAR_EXPRESSION: (
            f"SubscriptionPattern({regex!r}) is not valid in the broker's syntax, RE2{told}. Python's patterns are "
            "matched by the client: subscribe(re.compile(...))"
        ),
        error_codes.UNSUPPORTED_ASSIGNOR: (
            f"group.remote.assignor = {config.group_remote_assignor!r} is not one of the broker's assignors "
            f"(group.consumer.assignors; uniform and range by default){told}"
        ),
        error_codes.UNRELEASED_INSTANCE_ID: (
            f"group.instance.id = {config.group_instance_id!r} is in use in group {group_id!r} by another process "
            "that runs, or that died less than a session timeout ago: each process needs its own"
        ),
        error_codes.GROUP_MAX_SIZE_REACHED: (
            f"group {group_id!r} has as many members as the broker allows (group.consumer.max.size)"
        ),
        error_codes.GROUP_ID_NOT_FOUND: (
            f"group {group_id!r} cannot be joined with KIP-848{told}. If its members use the classic protocol, set "
            "group.protocol=classic, or have brokers convert the group (group.consumer.migration.policy). If it is a "
            "share or Streams group, choose another group.id"
        ),
        error_codes.INVALID_REQUEST: f"the broker refused the heartbeat of group {group_id!r}{told}",
    }
    if code in texts:
        return errors.for_code(code, texts[code])
    return explain(code, group_id, (), config)


def explain_heartbeat_transport(error: KafkaError, regex: str | None = None) -> KafkaError:
    """The same for an error without a response."""
    if isinstance(error, errors.UnsupportedVersionError):
        return errors.UnsupportedVersionError(f"{error}; {_no_kip_848(regex)}")
    return error


def explain_classic_members(group_id: str, regex: str) -> KafkaError:
    """The error of ``group.protocol=auto`` for a SubscriptionPattern in a group that uses the classic protocol."""
    return errors.UnsupportedVersionError(
        f"group {group_id!r} has classic members, and SubscriptionPattern({regex!r}) needs KIP-848: "
        f"subscribe(re.compile({regex!r})) joins them, group.protocol=consumer converts the group (auto never does)"
    )


def _no_kip_848(regex: str | None) -> str:
    if regex is None:
        return _NO_KIP_848
    return (
        f"SubscriptionPattern({regex!r}) is matched by the broker, and this one cannot (Kafka 4.0 or newer can): "
        f"subscribe(re.compile({regex!r})) is matched by the client, and works with every broker if group.protocol is "
        "auto or classic"
    )


IDENTITY: Final = frozenset(
    code for code in error_codes.NAMES if remedy_of_code(code) is Remedy.MEMBERSHIP
) | {error_codes.FENCED_INSTANCE_ID}
"""Codes about the member, not about the offsets."""


def error_of(codes: Mapping[TopicPartition, int]) -> KafkaError | None:
    """The error of one commit: permanent errors come before retriable ones."""
    failed = {partition: code for partition, code in codes.items() if code != error_codes.NONE}
    if not failed:
        return None
    denied = sorted({p.topic for p, code in failed.items() if code == error_codes.TOPIC_AUTHORIZATION_FAILED})
    lasting = [
        (p, code)
        for p, code in failed.items()
        if code not in error_codes.RETRIABLE and code != error_codes.TOPIC_AUTHORIZATION_FAILED
    ]
    if lasting:
        partition, code = lasting[0]
        return errors.for_code(code, f"commit of {partition}: {error_codes.MESSAGES.get(code, 'refused')}")
    if denied:
        return errors.for_code(
            error_codes.TOPIC_AUTHORIZATION_FAILED, f"not allowed to commit for {', '.join(denied)}"
        )
    partition, code = next(iter(failed.items()))
    return errors.for_code(
        code, f"commit of {partition}: {error_codes.MESSAGES.get(code, 'refused for now')}"
    )


def outsider(code: int, group_id: str | None) -> CommitFailedError:
    """The group has members, and this consumer is not one of them."""
    return CommitFailedError(
        f"{error_codes.name(code)}: group {group_id!r} has members that subscribe, so offsets "
        "of partitions chosen with assign() are refused; use a group id of its own"
    )


def expelled(code: int) -> CommitFailedError:
    """The group has removed this member."""
    return CommitFailedError(
        f"{error_codes.name(code)}: the group has removed this member, and other members may read its partitions "
        f"now. {_ADVICE}"
    )


def not_ours(
    partitions: set[TopicPartition], *, others: bool, strangers: Collection[TopicPartition] = ()
) -> CommitFailedError:
    """The member did not own these all the time.

    Args:
        others: the rest of the commit is committed. strangers: those that this member never owned.
    """
    names = ", ".join(str(partition) for partition in sorted(partitions)[:5])
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    rest = " The other partitions of the commit are committed." if others else ""
    any_more, advice = (" (any more)", _ADVICE) if partitions - set(strangers) else ("", _STRANGE)
    return CommitFailedError(
        f"{names}{more} not assigned to this member{any_more}.{rest} {advice}",
        partitions=frozenset(partitions) if others else frozenset(),
    )


_STRANGE = "It never was: the group gives each partition of its topics to one member, which commits it"

_ADVICE = (
    "This happens when the time between two polls exceeds max.poll.interval.ms (poll more often, process less "
    "per poll by max.poll.records, or raise it), or when the process stands still for longer than its session. The "
    "members that own the partitions now read the records again"
)
