"""The consumer's keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from kadence.config.client import ClientConfig, Fault, api_timeout
from kadence.config.table import AUTO, INT32_MAX, key
from kadence.lazy_dataclasses import dataclass

__all__ = ["ConsumerConfig", "deserializer_faults"]

_MAX_POLL_RECORDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The consumer's keys."""

    _BESIDES: ClassVar[str] = "; topics are given to subscribe()"

    default_api_timeout_ms: int = api_timeout()
    group_id: str | None = key(
        "string",
        None,
        "Name of the consumer group. subscribe() and commits need it.",
    )
    group_instance_id: str | None = key(
        "string",
        None,
        "Makes this consumer a static member, which the group recognises by this name after a restart.",
        since="KIP-345",
    )
    group_protocol: str = key(
        "choice",
        "auto",
        "The group's rebalance protocol. classic: a member assigns the partitions. consumer: the broker assigns "
        "them (Kafka 4.0 or newer). auto: consumer if the broker supports it, the group has no classic members, and"
        " session.timeout.ms, heartbeat.interval.ms and partition.assignment.strategy are not set; otherwise "
        "classic.",
        choices=("auto", "classic", "consumer"),
        since="KIP-848",
    )
    group_remote_assignor: str | None = key(
        "string",
        None,
        "For the KIP-848 protocol: the broker's assignor, such as uniform or range. When not set, the broker "
        "chooses.",
        since="KIP-848",
    )
    session_timeout_ms: int = key(
        "int",
        10_000,
        "The group removes a member that sends no heartbeat for this long. Classic protocol only; with KIP-848 the "
        "broker sets it (group.consumer.session.timeout.ms, 45 s by default).",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    heartbeat_interval_ms: int = key(
        "int",
        3_000,
        "How often the network thread sends a heartbeat. Classic protocol only; with KIP-848 the broker sets it "
        "(group.consumer.heartbeat.interval.ms, 5 s by default).",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    max_poll_interval_ms: int = key(
        "int",
        300_000,
        "The consumer leaves the group when the application does not poll for this long; a static member's "
        "partitions go to others when its session ends. Unless group.protocol=consumer, a longer session.timeout.ms"
        " counts instead.",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    stall_report_ratio: float = key(
        "float",
        0.5,
        "When a group member has not polled for this fraction of max.poll.interval.ms, it reports a stall: a "
        "WARNING with the line of your code that blocks polling. 0: no report; stalls() has the line once the "
        "member has left the group.",
        low=0,
        high=1,
    )
    stall_report_callback: Callable[[Any], Any] | None = key(
        "callable",
        None,
        "A callable that gets each stall (kadence.Stall) when it is reported, when the consumer leaves the group "
        "because of it, and when the application polls again. It runs on a helper thread.",
    )
    max_poll_records: int = key(
        "count",
        _MAX_POLL_RECORDS,
        "The most records that poll() without max_records= returns. -1: no limit. auto: up to 10,000, see "
        "max.poll.records.ratio.",
        low=-1,
        since="KIP-41",
    )
    max_poll_arrow_bytes: int = key(
        "int",
        2_097_152,
        "poll_arrow() without max_records= adds no more records once the table's keys and values have this many "
        "bytes, or the headers of a partition have. A max.poll.records other than 500 limits the rows, too.",
        low=1,
        high=INT32_MAX,
    )
    max_poll_records_ratio: float = key(
        "float",
        0.4,
        "With max.poll.records=auto: the fraction of max.poll.interval.ms within which the records of one poll must"
        " be processed. The consumer aims at a hundredth of that time. Sleep counts as processing: if your loop "
        "sleeps, set max.poll.records to a number.",
        low=0.001,
        high=1,
    )
    partition_assignment_strategy: tuple[Any, ...] = key(
        "assignors",
        ("cooperative-sticky",),
        "Classic protocol: assignors in order of preference. range, roundrobin, sticky, cooperative-sticky, their "
        "Java class names, or objects of your own (kadence.Assignor).",
    )
    enable_auto_commit: bool = key(
        "bool",
        True,
        "Whether the consumer commits automatically. It commits the records of a poll only once the next poll "
        "begins, or in close(). process() always commits. Without group.id nothing is committed.",
    )
    auto_commit_interval_ms: int = key(
        "int",
        5_000,
        "How often polls, or process(), commit. Automatic commits also happen before partitions are given up, and "
        "in close().",
        low=0,
    )
    auto_offset_reset: str = key(
        "string",
        "latest",
        "Where reading starts when a partition has no committed offset, or its offset no longer exists. "
        "by_duration:PT1H: at the records of an hour ago (ISO 8601, KIP-1106). none: poll() raises an error.",
        choices=("earliest", "latest", "none", "by_duration:<duration>"),
    )
    allow_auto_create_topics: bool = key(
        "bool", False, "Whether the broker may create a topic that the consumer asks for."
    )
    exclude_internal_topics: bool = key(
        "bool", True, "Whether a re.Pattern in subscribe() does not match Kafka's internal topics."
    )
    isolation_level: str = key(
        "choice",
        "read_uncommitted",
        "read_committed: the consumer returns no records of open or aborted transactions. read_uncommitted: it "
        "returns them.",
        choices=("read_uncommitted", "read_committed"),
        since="KIP-98",
    )
    fetch_min_bytes: int = key(
        "int",
        1,
        "The broker delays a fetch response until it has this much data, but no longer than fetch.max.wait.ms.",
        low=0,
    )
    fetch_max_wait_ms: int = key("int", 500, "The longest wait for fetch.min.bytes.", low=0)
    fetch_max_bytes: int = key(
        "int",
        52_428_800,
        "The most bytes of one fetch response. The first batch in it may be larger.",
        low=1,
    )
    max_partition_fetch_bytes: int = key(
        "int",
        2_097_152,
        "The most bytes of one partition in a fetch response. The first batch in the response may be larger.",
        low=1,
    )
    buffer_memory: int = key(
        "int",
        134_217_728,
        "The most memory for fetched data and what is decompressed of it, until polls have returned it. A single "
        "batch may exceed it; max.batch.bytes then limits what the batch decompresses to. A share consumer counts "
        "fetched data only.",
        low=1_048_576,
        since="KIP-81",
    )
    max_batch_bytes: int = key(
        "int",
        268_435_456,
        "The consumer does not read a batch that would decompress to more than this.",
        low=1,
    )
    check_crcs: bool = key("bool", True, "Whether the consumer verifies the checksum of each batch.")
    key_deserializer: Any = key(
        "deserializer",
        None,
        "Turns the bytes of keys into objects: a callable, an object with deserialize(topic, headers, data), or the"
        " name of a built-in one (kadence.deserializers; Java's class names work, too). When not set, keys are "
        "bytes. poll_arrow() does not use it.",
    )
    value_deserializer: Any = key(
        "deserializer",
        None,
        "Turns the bytes of values into objects, as key.deserializer does for keys. poll_arrow() uses it only with "
        "value=.",
    )
    deserialization_errors: str = key(
        "choice",
        "raise",
        "What the consumer does with a record that a deserialiser refuses. raise: polls raise an error, or return "
        "other partitions' records, until you seek past the record. skip: it logs, counts and skips the record. "
        "dead-letter: it writes the record to dead.letter.topic. With process(dead_letter=...) bad records go to "
        "that topic instead.",
        choices=("raise", "skip", "dead-letter"),
    )
    dead_letter_topic: str | None = key(
        "string",
        None,
        "The topic to which the consumer writes bad records. It adds headers kadence.error.… with the record's "
        "origin and the error. A bad record counts as processed once its dead letter record is acknowledged.",
    )
    interceptors: tuple[Any, ...] = key(
        "objects",
        (),
        "Objects (kadence.Interceptor) that see and may change the records that poll() returns (not poll_arrow()), "
        "and see committed offsets.",
        since="KIP-42",
    )
    client_rack: str = key(
        "string",
        "",
        "The rack in which this consumer runs. It reads from replicas in the same rack if the brokers are "
        "configured for it.",
        since="KIP-392",
    )

    @property
    def processing_timeout_ms(self) -> int:
        """The effective processing timeout, which is also the rebalance timeout (B2)."""
        if self.group_protocol == "consumer":
            return self.max_poll_interval_ms  # the session is the broker's
        return max(self.session_timeout_ms, self.max_poll_interval_ms)

    @property
    def unpack_bytes(self) -> int:
        """The part of ``buffer.memory`` for decompressed batches."""
        return self.buffer_memory // 4

    @property
    def arrow_rows(self) -> int:
        """The most rows of one poll_arrow(), as max.poll.records: records that are worked on one by one are few."""
        return -1 if self.max_poll_records == _MAX_POLL_RECORDS else self.max_poll_records

    @property
    def decoded_bytes(self) -> int:
        """The part of ``buffer.memory`` for records decoded ahead of small polls."""
        return min(self.buffer_memory // 64, 1 << 20)

    @property
    def auto_commit(self) -> bool:
        """True if the consumer commits by itself."""
        return self.enable_auto_commit and self.group_id is not None

    @property
    def reset_duration_ms(self) -> int | None:
        """The duration of ``auto.offset.reset=by_duration``; None for the other policies."""
        word, _, duration = self.auto_offset_reset.partition(":")
        if word != _BY_DURATION:
            return None
        from kadence.config.values import duration_ms

        return duration_ms(duration)

    def _faults(self) -> Iterator[Fault]:
        yield from ClientConfig._faults(self)
        yield from self._check_reset()
        if self.group_id == "":
            yield "group.id", "group.id is empty; give it a name, or leave it out to use assign()"
        name = self.group_instance_id
        if name is not None and (name in (".", "..") or not _INSTANCE.fullmatch(name)):
            yield (
                "group.instance.id",
                (
                    f"group.instance.id: {name!r} is not a name that brokers take: 1 to 249 letters a-z, A-Z, digits, "
                    "dots, underscores and hyphens, and not '.' or '..'"
                ),
            )

    def _contradictions(self, given: Mapping[str, str]) -> Iterator[Fault]:
        yield from ClientConfig._contradictions(self, given)
        yield from self._check_protocol(given)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield (
                "heartbeat.interval.ms",
                (
                    f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below session.timeout.ms "
                    f"({self.session_timeout_ms}); a third of it is usual"
                ),
            )
        if "max.poll.records.ratio" in given and self.max_poll_records != AUTO:
            yield (
                "max.poll.records.ratio",
                "max.poll.records.ratio means nothing without max.poll.records=auto",
            )
        if self.group_id is None and self.enable_auto_commit and "enable.auto.commit" in given:
            yield "enable.auto.commit", "enable.auto.commit needs group.id: offsets are committed for a group"
        if self.group_instance_id is not None and self.group_id is None:
            yield "group.instance.id", "group.instance.id needs group.id"
        yield from deserializer_faults(self, given)
        # The default may be above a small buffer: fetches never ask for more than there is room for.
        if self.max_partition_fetch_bytes > self.buffer_memory and "max.partition.fetch.bytes" in given:
            yield (
                "max.partition.fetch.bytes",
                "max.partition.fetch.bytes is above buffer.memory, so no full fetch would ever fit",
            )

    def _check_reset(self) -> Iterator[Fault]:
        word, colon, duration = self.auto_offset_reset.partition(":")
        word = word.strip().lower()
        if word == _BY_DURATION and colon:
            from kadence.config.values import duration_ms

            try:
                duration_ms(duration)
            except ValueError as error:
                yield (
                    "auto.offset.reset",
                    (
                        f"auto.offset.reset: {error}; write for instance by_duration:PT1H (an hour), "
                        "PT30M, P7D or P1DT12H"
                    ),
                )
        elif colon or word not in ("earliest", "latest", "none"):
            yield (
                "auto.offset.reset",
                (
                    f"auto.offset.reset: {self.auto_offset_reset!r} is not one of earliest, latest, none, "
                    "by_duration:<duration>, e.g. by_duration:PT1H"
                ),
            )
        object.__setattr__(self, "auto_offset_reset", word + colon + duration.strip().upper())

    def _check_protocol(self, given: Mapping[str, str]) -> Iterator[Fault]:
        """Each group protocol has keys that mean nothing to the other (C4)."""
        if self.group_protocol == "consumer":
            for name, instead in _CLASSIC_ONLY.items():
                if name in given:
                    yield (
                        name,
                        (
                            f"{name} is a key of the classic protocol, where the client decides; with "
                            f"group.protocol=consumer the broker does: {instead}, or set group.protocol=classic"
                        ),
                    )
        elif self.group_protocol == "auto" and not given.keys().isdisjoint(_CLASSIC_ONLY):
            object.__setattr__(self, "group_protocol", "classic")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            yield (
                "group.remote.assignor",
                (
                    "group.remote.assignor needs group.protocol=consumer, and no key of the classic protocol, "
                    "which has partition.assignment.strategy"
                ),
            )


def deserializer_faults(config: Any, given: Mapping[str, str]) -> Iterator[Fault]:
    """A policy for bad records that can never be needed, or never be kept, is a mistake. Of share consumers, too."""
    decodes = config.key_deserializer is not None or config.value_deserializer is not None
    if "deserialization.errors" in given and config.deserialization_errors != "raise" and not decodes:
        yield (
            "deserialization.errors",
            "deserialization.errors needs key.deserializer or value.deserializer: bytes are never bad",
        )
    if (config.deserialization_errors == "dead-letter") != (config.dead_letter_topic is not None):
        yield (
            "deserialization.errors",
            "deserialization.errors=dead-letter and dead.letter.topic belong together; one is missing",
        )


_INSTANCE: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BY_DURATION: Final = "by_duration"
_CLASSIC_ONLY: Final[Mapping[str, str]] = {
    "session.timeout.ms": "leave it out (group.consumer.session.timeout.ms on the broker)",
    "heartbeat.interval.ms": "leave it out (group.consumer.heartbeat.interval.ms on the broker)",
    "partition.assignment.strategy": "name a broker's assignor in group.remote.assignor",
}
