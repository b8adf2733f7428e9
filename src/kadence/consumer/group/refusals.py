"""The error messages for a member that a group refuses for good: what was given, what is allowed, what to do."""

from __future__ import annotations

from kadence import errors
from kadence.consumer.group.membership import GroupConfig
from kadence.errors import KafkaError
from kadence.protocol import error_codes

__all__ = [
    "explain",
    "explain_classic_members",
    "explain_heartbeat",
    "explain_heartbeat_transport",
    "explain_transport",
]

_NO_KIP_848 = (
    "the broker does not speak KIP-848's group protocol (Kafka 4.0 does; in 3.7 to 3.9 it is switched on by "
    "group.coordinator.rebalance.protocols): set group.protocol=classic for it"
)


def explain(code: int, group_id: str, assignors: tuple[str, ...], config: GroupConfig) -> KafkaError:
    """The error of a code that JoinGroup, SyncGroup or Heartbeat was refused with."""
    texts = {
        error_codes.INCONSISTENT_GROUP_PROTOCOL: (
            f"the members of group {group_id!r} share no assignor with this one, which offers "
            f"{', '.join(assignors)}. Java's consumer offers range and cooperative-sticky by default, librdkafka "
            "range and roundrobin: to join such a group, name what they use in partition.assignment.strategy, "
            "e.g. 'range' or 'cooperative-sticky,range'. To change the assignor of a running group, restart its "
            "members one by one twice: first with both, the new one in front ('cooperative-sticky,range'), then with "
            "the new one alone. Or the group id is used by something that is no consumer"
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
        error_codes.INVALID_GROUP_ID: f"group.id = {group_id!r} is not one that the broker takes",
    }
    return errors.for_code(code, texts.get(code))


def explain_transport(error: KafkaError, config: GroupConfig) -> KafkaError:
    """The same for an error before any answer: static membership is the one thing that an old broker cannot carry."""
    if isinstance(error, errors.UnsupportedVersionError) and config.group_instance_id is not None:
        return errors.UnsupportedVersionError(
            f"{error}; static membership needs JoinGroup v5 (Kafka 2.3): unset group.instance.id for this broker"
        )
    return error


def explain_heartbeat(
    code: int, message: str | None, group_id: str, config: GroupConfig, regex: str | None = None
) -> KafkaError:
    """The error of a code that ConsumerGroupHeartbeat was refused with.

    Args:
        message: the broker's own words. regex: that of the subscription, if it is a `SubscriptionPattern`.
    """
    told = f": {message.rstrip('.')}" if message else ""
    texts = {
        error_codes.UNSUPPORTED_VERSION: _no_kip_848(regex),
        error_codes.INVALID_REGULAR_EXPRESSION: (
            f"SubscriptionPattern({regex!r}) is not valid in the broker's syntax, RE2{told}. Python's patterns are "
            "matched by the client: subscribe(re.compile(...))"
        ),
        error_codes.UNSUPPORTED_ASSIGNOR: (
            f"group.remote.assignor = {config.group_remote_assignor!r} is none of the broker's assignors "
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
            f"group {group_id!r} cannot be joined with KIP-848{told}. Its members speak another protocol and the "
            "broker does not convert it (group.consumer.migration.policy): set group.protocol=classic"
        ),
        error_codes.INVALID_REQUEST: f"the broker refused the heartbeat of group {group_id!r}{told}",
    }
    if code in texts:
        return errors.for_code(code, texts[code])
    return explain(code, group_id, (), config)


def explain_heartbeat_transport(error: KafkaError, regex: str | None = None) -> KafkaError:
    """The same for an error before any answer."""
    if isinstance(error, errors.UnsupportedVersionError):
        return errors.UnsupportedVersionError(f"{error}; {_no_kip_848(regex)}")
    return error


def explain_classic_members(group_id: str, regex: str) -> KafkaError:
    """What ``group.protocol=auto`` says to a SubscriptionPattern for a group that lives by the classic protocol."""
    return errors.UnsupportedVersionError(
        f"group {group_id!r} has classic members, and SubscriptionPattern({regex!r}) needs KIP-848: "
        f"subscribe(re.compile({regex!r})) joins them, group.protocol=consumer converts the group (auto never does)"
    )


def _no_kip_848(regex: str | None) -> str:
    if regex is None:
        return _NO_KIP_848
    return (
        f"SubscriptionPattern({regex!r}) is matched by the broker, and this one cannot (Kafka 4.0 or newer can): "
        f"subscribe(re.compile({regex!r})) is matched by the client, with every broker"
    )
