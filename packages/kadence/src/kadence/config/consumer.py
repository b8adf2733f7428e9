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
        "Makes this consumer a static member: a name that it keeps when its process restarts.",
        since="KIP-345",
    )
    group_protocol: str = key(
        "choice",
        "auto",
        "How the group rebalances. classic: a member assigns the partitions. consumer: the broker assigns them "
        "(Kafka 4.0 or newer). auto: consumer if the broker supports it, the group has no classic members, "
        "and session.timeout.ms, heartbeat.interval.ms and partition.assignment.strategy are not set; else classic.",
        choices=("auto", "classic", "consumer"),
        since="KIP-848",
    )
    group_remote_assignor: str | None = key(
        "string",
        None,
        "For the KIP-848 protocol: the broker's assignor, such as uniform or range. When not set, the broker chooses.",
        since="KIP-848",
    )
    session_timeout_ms: int = key(
        "int",
        10_000,
        "The group removes a member that sends no heartbeat for this long. Classic protocol only; with KIP-848 the "
        "broker's group.consumer.session.timeout.ms counts, 45 s by default.",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    heartbeat_interval_ms: int = key(
        "int",
        3_000,
        "How often the network thread sends a heartbeat. Classic protocol only; with KIP-848 the broker's "
        "group.consumer.heartbeat.interval.ms counts, 5 s by default.",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    max_poll_interval_ms: int = key(
        "int",
        300_000,
        "The consumer leaves the group when the application does not poll for this long; a static member's partitions "
        "go to others when its session ends. With the classic protocol and with auto, session.timeout.ms counts "
        "instead if that is longer.",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    stall_report_ratio: float = key(
        "float",
        0.5,
        "After this part of max.poll.interval.ms without a poll a group's member reports a stall: a WARNING with the "
        "line of your code that blocks the poll loop. 0: none; stalls() has the line when it leaves the group.",
        low=0,
        high=1,
    )
    stall_report_callback: Callable[[Any], Any] | None = key(
        "callable",
        None,
        "A callable that gets each stall (kadence.Stall) when it is reported, when the consumer leaves the group "
        "because of it, and when it is over. It runs on a helper thread.",
    )
    max_poll_records: int = key(
        "count",
        _MAX_POLL_RECORDS,
        "The most records that one poll() without max_records= returns. -1: no limit. auto: up to 10,000, see "
        "max.poll.records.ratio.",
        low=-1,
        since="KIP-41",
    )
    max_poll_arrow_bytes: int = key(
        "int",
        2_097_152,
        "One poll_arrow() without max_records= ends at the latest with the record that makes its keys and values this "
        "many bytes. The headers of each partition have this limit, too. A max.poll.records that is not the default "
        "limits the rows, too.",
        low=1,
        high=INT32_MAX,
    )
    max_poll_records_ratio: float = key(
        "float",
        0.4,
        "With max.poll.records=auto: the part of max.poll.interval.ms that the records of one poll may take. The "
        "consumer aims at a hundredth of it, so that records may suddenly take a hundred times longer. Sleep in your "
        "loop counts as processing: set max.poll.records to a number then.",
        low=0.001,
        high=1,
    )
    partition_assignment_strategy: tuple[Any, ...] = key(
        "assignors",
        ("cooperative-sticky",),
        "Classic protocol: assignors in order of preference. range, roundrobin, sticky, cooperative-sticky, the "
        "names of their Java classes, or objects of your own (kadence.Assignor).",
    )
    enable_auto_commit: bool = key(
        "bool",
        True,
        "Whether the consumer commits by itself; process() always does. It commits the records of a poll only once the "
        "next poll begins, or in close(). Without group.id it commits nothing.",
    )
    auto_commit_interval_ms: int = key(
        "int",
        5_000,
        "How often polls, or process(), commit. The consumer also commits before it gives partitions up, and in "
        "close().",
        low=0,
    )
    auto_offset_reset: str = key(
        "string",
        "latest",
        "Where a partition starts without a committed offset, and where it goes on when its offset no longer exists. "
        "by_duration:PT1H: the records since an hour ago (ISO 8601, KIP-1106). none: poll() raises an error.",
        choices=("earliest", "latest", "none", "by_duration:<duration>"),
    )
    allow_auto_create_topics: bool = key(
        "bool", False, "Whether the broker may create a topic that the consumer asks for."
    )
    exclude_internal_topics: bool = key(
        "bool", True, "Whether a re.Pattern in subscribe() leaves out Kafka's internal topics."
    )
    isolation_level: str = key(
        "choice",
        "read_uncommitted",
        "read_committed: the consumer returns no records of open or aborted transactions. read_uncommitted: it "
        "returns these, too.",
        choices=("read_uncommitted", "read_committed"),
        since="KIP-98",
    )
    fetch_min_bytes: int = key(
        "int",
        1,
        "The broker waits until it has this much data to send, but no longer than fetch.max.wait.ms.",
        low=0,
    )
    fetch_max_wait_ms: int = key("int", 500, "The longest wait for fetch.min.bytes.", low=0)
    fetch_max_bytes: int = key(
        "int",
        52_428_800,
        "The most bytes of one fetch response. Its first batch may be larger.",
        low=1,
    )
    max_partition_fetch_bytes: int = key(
        "int",
        2_097_152,
        "The most bytes of one partition in a fetch response. The response's first batch may be larger.",
        low=1,
    )
    buffer_memory: int = key(
        "int",
        134_217_728,
        "The most memory for records that are fetched, decompressed or held for the application. A single batch may "
        "exceed it: one that is larger is fetched alone, and what it decompresses to is bounded by max.batch.bytes.",
        low=1_048_576,
        since="KIP-81",
    )
    max_batch_bytes: int = key(
        "int",
        268_435_456,
        "The consumer refuses a batch that would decompress to more than this, and allocates no more.",
        low=1,
    )
    check_crcs: bool = key("bool", True, "Whether the consumer verifies the checksum of each batch.")
    key_deserializer: Any = key(
        "deserializer",
        None,
        "Turns the bytes of keys into objects: a callable, an object with deserialize(topic, headers, data), or the "
        "name of a built-in one (kadence.deserializers; Java's class names work, too). When not set, keys are bytes. "
        "poll_arrow() does not call it.",
    )
    value_deserializer: Any = key(
        "deserializer", None, "Turns the bytes of values into objects, as key.deserializer does for keys."
    )
    deserialization_errors: str = key(
        "choice",
        "raise",
        "What the consumer does with a record that a deserialiser refuses. raise: polls raise, or return other "
        "partitions' records, until you seek past it. skip: the record is logged, counted and skipped. dead-letter: "
        "the consumer writes it to dead.letter.topic.",
        choices=("raise", "skip", "dead-letter"),
    )
    dead_letter_topic: str | None = key(
        "string",
        None,
        "The topic to which the consumer writes bad records. It adds headers kadence.error.… with the record's origin "
        "and the error. A bad record counts as processed once the broker has acknowledged its dead letter record.",
    )
    interceptors: tuple[Any, ...] = key(
        "objects",
        (),
        "Objects (kadence.Interceptor) that see and may change what poll(), not poll_arrow(), returns, and see what is "
        "committed.",
        since="KIP-42",
    )
    client_rack: str = key(
        "string",
        "",
        "The rack in which this consumer runs. It then reads from replicas in the same rack where the broker allows "
        "it.",
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
