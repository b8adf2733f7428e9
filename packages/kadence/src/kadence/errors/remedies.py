"""The remedies of errors: one table of brokers' error codes, and the remedies of the client's own errors.

Every retry looks up here whether the same request may succeed, and when. `error_codes.RETRIABLE` is Kafka's own list;
the codes in it are those with `Remedy.TIME`, `METADATA` or `COORDINATOR`; some of the others have another remedy than a
repetition. A table of one API (`producer.verdicts`, `producer.transaction_requests`) has only what a code means there
and nowhere else.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kadence.errors.broker import BrokerError
from kadence.errors.local import (
    AuthenticationError,
    CommitFailedError,
    KafkaError,
    RecordTooLargeError,
)
from kadence.protocol import error_codes as ec

__all__ = ["REPEATED", "Remedy", "may_pass", "remedy_of", "remedy_of_code"]


class Remedy(Enum):
    """The condition for the same request to succeed."""

    TIME = "nothing: it is repeated after a while"
    METADATA = "metadata is requested: the partition may have another leader, or its topic be deleted"
    COORDINATOR = "the coordinator is looked up again"
    MEMBERSHIP = "the member joins the group again, or hears of its new epoch"
    FORM = "what is sent becomes smaller"
    PERMISSION = "a person gives the permission, or mends the login"
    NONE = "the program, or the settings of the cluster, change"


REPEATED: Final = frozenset({Remedy.TIME, Remedy.METADATA, Remedy.COORDINATOR})
"""The same request may succeed without anybody's doing: these are Kafka's retriable errors."""

_TABLE: Final[dict[int, Remedy]] = {
    ec.UNKNOWN_TOPIC_OR_PARTITION: Remedy.METADATA,
    ec.LEADER_NOT_AVAILABLE: Remedy.METADATA,
    ec.NOT_LEADER_OR_FOLLOWER: Remedy.METADATA,
    ec.REPLICA_NOT_AVAILABLE: Remedy.METADATA,
    ec.KAFKA_STORAGE_ERROR: Remedy.METADATA,
    ec.FENCED_LEADER_EPOCH: Remedy.METADATA,
    ec.UNKNOWN_LEADER_EPOCH: Remedy.METADATA,
    ec.UNKNOWN_TOPIC_ID: Remedy.METADATA,
    ec.INCONSISTENT_TOPIC_ID: Remedy.METADATA,
    ec.NOT_COORDINATOR: Remedy.COORDINATOR,
    ec.COORDINATOR_NOT_AVAILABLE: Remedy.COORDINATOR,
    ec.ILLEGAL_GENERATION: Remedy.MEMBERSHIP,
    ec.UNKNOWN_MEMBER_ID: Remedy.MEMBERSHIP,
    ec.REBALANCE_IN_PROGRESS: Remedy.MEMBERSHIP,
    ec.FENCED_MEMBER_EPOCH: Remedy.MEMBERSHIP,
    ec.STALE_MEMBER_EPOCH: Remedy.MEMBERSHIP,
    ec.MESSAGE_TOO_LARGE: Remedy.FORM,
    ec.RECORD_LIST_TOO_LARGE: Remedy.FORM,
    ec.OFFSET_METADATA_TOO_LARGE: Remedy.FORM,
    ec.INVALID_COMMIT_OFFSET_SIZE: Remedy.FORM,
    ec.TOPIC_AUTHORIZATION_FAILED: Remedy.PERMISSION,
    ec.GROUP_AUTHORIZATION_FAILED: Remedy.PERMISSION,
    ec.CLUSTER_AUTHORIZATION_FAILED: Remedy.PERMISSION,
    ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Remedy.PERMISSION,
    ec.DELEGATION_TOKEN_AUTHORIZATION_FAILED: Remedy.PERMISSION,
    ec.SASL_AUTHENTICATION_FAILED: Remedy.PERMISSION,
}


def remedy_of_code(code: int) -> Remedy:
    """The remedy of a broker's error code. For an unknown code there is none."""
    remedy = _TABLE.get(code)
    if remedy is None:
        remedy = Remedy.TIME if code in ec.RETRIABLE else Remedy.NONE
    return remedy


def remedy_of(error: BaseException) -> Remedy:
    """The remedy of an error, a broker's or the client's own."""
    if isinstance(error, BrokerError):
        return remedy_of_code(error.code)
    if isinstance(error, RecordTooLargeError):
        return Remedy.FORM
    if isinstance(error, CommitFailedError):
        return Remedy.MEMBERSHIP
    if isinstance(error, AuthenticationError):
        return Remedy.PERMISSION
    return Remedy.TIME if isinstance(error, KafkaError) and error.retriable else Remedy.NONE


def may_pass(error: BaseException) -> bool:
    """True if repeating is worthwhile: the cause may go away, perhaps when an administrator acts."""
    return remedy_of(error) in REPEATED or remedy_of(error) is Remedy.PERMISSION
