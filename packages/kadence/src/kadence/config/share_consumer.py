"""The share consumer's keys, and those of a consumer that a queue cannot have (KIP-932, "Client configuration")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from kadence.config.client import ClientConfig, Fault, api_timeout
from kadence.config.consumer import ConsumerConfig, deserializer_faults
from kadence.config.table import INT32_MAX, key, same_key
from kadence.lazy_dataclasses import dataclass

__all__ = ["ShareConsumerConfig"]


_LEAVE_OUT: Final = "leave it out"
_NO_INTERCEPTORS: Final = (
    "look at what poll() returns; set_acknowledgement_commit_callback() reports acknowledgements"
)
_GROUP_KEY: Final = "set {} of the group instead: Admin.incremental_alter_configs, or kadence groups"

_REFUSED: Final[Mapping[str, str]] = {
    name: f"a share consumer has no {name}: {why}"
    for name, why in {
        "auto.offset.reset": "where a queue begins is the group's; "
        + _GROUP_KEY.format("share.auto.offset.reset"),
        "isolation.level": "it is the group's; " + _GROUP_KEY.format("share.isolation.level"),
        "enable.auto.commit": "records are acknowledged, not committed; choose share.acknowledgement.mode instead",
        "auto.commit.interval.ms": f"acknowledgements travel with the next fetch, or by commit(); {_LEAVE_OUT}",
        "group.instance.id": f"share groups have no static members; {_LEAVE_OUT}",
        "partition.assignment.strategy": f"the broker assigns the partitions of a share group; {_LEAVE_OUT}",
        "group.remote.assignor": f"the broker's group.share.assignors counts; {_LEAVE_OUT}",
        "group.protocol": f"a share group has one protocol; {_LEAVE_OUT}",
        "session.timeout.ms": "the broker keeps the session; "
        + _GROUP_KEY.format("share.session.timeout.ms"),
        "heartbeat.interval.ms": "the broker sets it; " + _GROUP_KEY.format("share.heartbeat.interval.ms"),
        "interceptors": _NO_INTERCEPTORS,
        "interceptor.classes": _NO_INTERCEPTORS,
        "max.partition.fetch.bytes": "the broker divides fetch.max.bytes among the partitions; set that instead",
        "max.poll.arrow.bytes": "poll_arrow(max_records=...) bounds a table",
        "exclude.internal.topics": f"subscribe() takes names, not patterns; {_LEAVE_OUT}",
        "max.poll.records.ratio": "max.poll.records is a number here; set that instead",
    }.items()
}
"""Keys of a consumer, and what to do instead. Kafka's own share consumer refuses most of them, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """The share consumer's keys."""

    _BESIDES: ClassVar[str] = "; topics are given to subscribe()"
    _REFUSED: ClassVar[Mapping[str, str]] = _REFUSED

    default_api_timeout_ms: int = api_timeout()
    group_id: str | None = key(
        "string",
        None,
        "Required. Name of the share group, which is the queue.",
        since="KIP-932",
    )
    share_acknowledgement_mode: str = key(
        "choice",
        "implicit",
        "implicit: the next poll() or commit() accepts all records that the last poll() returned. explicit: the "
        "application calls acknowledge() for each record.",
        choices=("implicit", "explicit"),
        since="KIP-932",
    )
    share_acquire_mode: str = key(
        "choice",
        "batch_optimized",
        "batch_optimized: the broker delivers whole batches, so a fetch may acquire more records than "
        "max.poll.records. record_limit (Kafka 4.2 or newer): a fetch acquires at most max.poll.records, and the "
        "consumer fetches nothing ahead.",
        choices=("batch_optimized", "record_limit"),
        since="KIP-1206",
    )
    share_lock_renewal: bool = key(
        "bool",
        True,
        "Whether the network thread renews the locks of records that the application holds (Kafka 4.2 or newer), "
        "while the application polls within max.poll.interval.ms. false: once its lock has expired, a record may be"
        " delivered again.",
        since="KIP-1222",
    )
    max_poll_interval_ms: int = key(
        "int",
        300_000,
        "When the application does not poll for this long, the consumer leaves the group and renews no more locks.",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    stall_report_ratio: float = same_key(ConsumerConfig, "stall_report_ratio")
    stall_report_callback: Callable[[Any], Any] | None = same_key(ConsumerConfig, "stall_report_callback")
    max_poll_records: int = key(
        "int",
        500,
        "The most records that poll() without max_records= returns. With share.acquire.mode=record_limit, also the "
        "most that a fetch acquires.",
        low=1,
        high=INT32_MAX,
        since="KIP-41",
    )
    allow_auto_create_topics: bool = same_key(ConsumerConfig, "allow_auto_create_topics")
    fetch_min_bytes: int = same_key(ConsumerConfig, "fetch_min_bytes")
    fetch_max_wait_ms: int = same_key(ConsumerConfig, "fetch_max_wait_ms")
    fetch_max_bytes: int = same_key(ConsumerConfig, "fetch_max_bytes")
    buffer_memory: int = same_key(ConsumerConfig, "buffer_memory")
    max_batch_bytes: int = same_key(ConsumerConfig, "max_batch_bytes")
    check_crcs: bool = same_key(ConsumerConfig, "check_crcs")
    key_deserializer: Any = same_key(ConsumerConfig, "key_deserializer")
    value_deserializer: Any = same_key(ConsumerConfig, "value_deserializer")
    deserialization_errors: str = key(
        "choice",
        "raise",
        "What the consumer does with a record that a deserialiser refuses. raise: poll() raises an error, and the "
        "consumer releases the record; in explicit mode you may choose another acknowledgement. release: it "
        "releases the record. reject: it rejects the record; the broker then archives it, or writes it to the "
        "group's dead letter topic. dead-letter: it writes the record to dead.letter.topic, and accepts it.",
        choices=("raise", "release", "reject", "dead-letter"),
    )
    dead_letter_topic: str | None = key(
        "string",
        None,
        "The topic to which the consumer writes bad records, with the same headers as a consumer. It accepts a bad "
        "record once its dead letter record is acknowledged.",
    )
    client_rack: str = key(
        "string", "", "The rack in which this consumer runs. Kafka 4.4 does not use it for share groups."
    )

    # A member of a share group is never static, and its broker alone has the times of its session and the assignor.

    @property
    def group_instance_id(self) -> None:
        """None: share groups have no static members."""
        return

    @property
    def session_timeout_ms(self) -> int:
        """The default of group.share.session.timeout.ms, which no broker tells its members."""
        return 45_000

    @property
    def heartbeat_interval_ms(self) -> int:
        """Until the broker has told its own."""
        return 5_000

    @property
    def processing_timeout_ms(self) -> int:
        """After how long without a poll the member leaves."""
        return self.max_poll_interval_ms

    @property
    def partition_assignment_strategy(self) -> tuple[Any, ...]:
        """The broker assigns."""
        return ()

    @property
    def group_remote_assignor(self) -> None:
        """The broker chooses."""
        return

    @property
    def exclude_internal_topics(self) -> bool:
        """There are no patterns."""
        return True

    @property
    def is_explicit(self) -> bool:
        """Whether the application acknowledges each record."""
        return self.share_acknowledgement_mode == "explicit"

    @property
    def limits_records(self) -> bool:
        """Whether a fetch acquires no more than it asks for."""
        return self.share_acquire_mode == "record_limit"

    def _faults(self) -> Iterator[Fault]:
        yield from ClientConfig._faults(self)
        if self.group_id == "":
            yield "group.id", "group.id is empty; give it the name of the queue"

    def _contradictions(self, given: Mapping[str, str]) -> Iterator[Fault]:
        yield from ClientConfig._contradictions(self, given)
        if self.group_id is None:
            yield "group.id", "group.id is required: a share group is the queue that this consumer reads"
        yield from deserializer_faults(self, given)
