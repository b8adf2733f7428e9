"""The consumer's keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kadence.config import foreign
from kadence.config.client import ClientConfig
from kadence.config.durations import duration_ms
from kadence.config.table import AUTO, INT32_MAX, key

__all__ = ["ConsumerConfig"]

_MAX_POLL_RECORDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The consumer's keys."""

    _BESIDES: ClassVar[str] = "; topics are given to subscribe()"

    group_id: str | None = key(
        "string",
        None,
        "The consumer group; needed for subscribe() and committed offsets.",
    )
    group_instance_id: str | None = key(
        "string",
        None,
        "Static membership: a name that survives restarts of this process.",
        since="KIP-345",
    )
    group_protocol: str = key(
        "choice",
        "auto",
        "How the group rebalances: classic (members assign), consumer (the broker does; Kafka 4.0 or newer) or auto: "
        "consumer where the broker has it, no key of classic is set and the group has no classic members.",
        choices=("auto", "classic", "consumer"),
        since="KIP-848",
    )
    group_remote_assignor: str | None = key(
        "string",
        None,
        "The broker's assignor to ask for, uniform or range, with group.protocol=consumer; the broker's choice "
        "when not set.",
        since="KIP-848",
    )
    session_timeout_ms: int = key(
        "int",
        10_000,
        "A process that sends no heartbeat for so long is dead. Of the classic protocol; with KIP-848, which auto "
        "takes where it can, the broker decides: 45 s (group.consumer.session.timeout.ms).",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    heartbeat_interval_ms: int = key(
        "int",
        3_000,
        "How often the network thread sends a heartbeat. Of the classic protocol, as above: with KIP-848 the broker "
        "tells, every 5 s (group.consumer.heartbeat.interval.ms).",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    max_poll_interval_ms: int = key(
        "int",
        300_000,
        "A process that does not poll for so long makes no progress; it leaves the group. Of the classic protocol, and "
        "with auto, it counts as session.timeout.ms where that is more, which is logged.",
        low=1,
        high=INT32_MAX,
        since="KIP-62",
    )
    stall_report_share: float = key(
        "float",
        0.5,
        "At which part of the processing timeout (max.poll.interval.ms) a stall is reported: how long, which "
        "records are in hand, where the thread is that should poll. Once for each stall; 0 = never.",
        low=0,
        high=1,
    )
    stall_report_callback: Callable[[Any], Any] | None = key(
        "callable",
        None,
        "Called with each stall (kadence.Stall), when it is reported, when the group is left and when it is over; on "
        "a helper thread.",
    )
    max_poll_records: int = key(
        "count",
        _MAX_POLL_RECORDS,
        "Most records one poll() returns; -1 = no cap; auto = as many as their measured cost allows.",
        low=-1,
        since="KIP-41",
    )
    max_poll_arrow_bytes: int = key(
        "int",
        2_097_152,
        "Most bytes of keys and values that one poll_arrow() returns, not counting its last record. The default is "
        "that of two fetched partitions. Where max.poll.records is not its default it bounds the rows, too.",
        low=1,
        high=INT32_MAX,
    )
    max_poll_records_share: float = key(
        "float",
        0.4,
        "With max.poll.records=auto: the part of max.poll.interval.ms that no round of processing may exceed, should "
        "records become up to a hundred times dearer at once; rounds are cut to take a hundredth of it. A round is all "
        "that happens from one poll to the next: a loop that sleeps for seconds in between wants a number instead.",
        low=0.001,
        high=1,
    )
    partition_assignment_strategy: tuple[Any, ...] = key(
        "assignors",
        ("cooperative-sticky",),
        "Assignors of the classic protocol, in order of preference: range, roundrobin, sticky, cooperative-sticky, "
        "their Java classes, or objects of your own (kadence.Assignor).",
    )
    enable_auto_commit: bool = key(
        "bool",
        True,
        "Commit by itself what a later poll has proved processed. Without group.id there is nothing to commit.",
    )
    auto_commit_interval_ms: int = key("int", 5_000, "How often it does.", low=0)
    auto_offset_reset: str = key(
        "string",
        "latest",
        "Where to start without a committed offset, and where to go on when the offset is not there any more; "
        "by_duration:PT1H is an hour ago (ISO 8601, KIP-1106), none raises.",
        choices=("earliest", "latest", "none", "by_duration:<duration>"),
    )
    allow_auto_create_topics: bool = key(
        "bool", False, "Whether asking for a topic may create it on the broker."
    )
    exclude_internal_topics: bool = key("bool", True, "Whether a pattern skips Kafka's own topics.")
    isolation_level: str = key(
        "choice",
        "read_uncommitted",
        "Whether records of open and aborted transactions are seen.",
        choices=("read_uncommitted", "read_committed"),
        since="KIP-98",
    )
    fetch_min_bytes: int = key("int", 1, "The broker waits for so much data, or fetch.max.wait.ms.", low=0)
    fetch_max_wait_ms: int = key("int", 500, "Longest such wait.", low=0)
    fetch_max_bytes: int = key(
        "int",
        52_428_800,
        "Most bytes of one fetch response (its first batch may be larger).",
        low=1,
    )
    max_partition_fetch_bytes: int = key(
        "int",
        2_097_152,
        "Most bytes of one partition in it. Twice Kafka's: as many bytes cost half as many requests.",
        low=1,
    )
    buffer_memory: int = key(
        "int",
        134_217_728,
        "Hard cap on bytes held: fetched, decompressed and retained.",
        low=1_048_576,
        since="KIP-81",
    )
    prefetch_heuristic: str = key(
        "choice",
        "bytes",
        "When enough is buffered. bytes: a partition has more than max.partition.fetch.bytes; total and share are "
        "KIP-41's: all have max.poll.records, or each its share of them.",
        choices=("bytes", "total", "share"),
        since="KIP-41",
    )
    max_batch_bytes: int = key(
        "int",
        268_435_456,
        "A batch that decompresses to more is refused, before the memory is spent.",
        low=1,
    )
    check_crcs: bool = key("bool", True, "Verify the checksum of each batch.")
    key_deserializer: Any = key(
        "deserializer",
        None,
        "Makes keys of bytes: a callable, an object with deserialize(topic, headers, data), or the name of a ready one "
        "(kadence.deserializers; Java's class names too). Keys stay bytes without.",
    )
    value_deserializer: Any = key("deserializer", None, "The same for values.")
    deserialization_errors: str = key(
        "choice",
        "raise",
        "What becomes of a record that a deserialiser refuses: raise it from each poll until you seek past it, skip it "
        "(logged and counted), or write it to dead.letter.topic.",
        choices=("raise", "skip", "dead-letter"),
    )
    dead_letter_topic: str | None = key(
        "string",
        None,
        "Where bad records go, as they are and with headers that tell where they come from: kadence.error.topic, "
        ".partition, .offset, .field, .class, .message and .group. A record counts as processed once its letter is "
        "acknowledged.",
    )
    interceptors: tuple[Any, ...] = key(
        "objects",
        (),
        "Objects that see what poll() returns, and may change it, and what is committed (kadence.Interceptor).",
        since="KIP-42",
    )
    client_rack: str = key(
        "string",
        "",
        "Where this client runs, to read from a near replica.",
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
        """What of ``buffer.memory`` is kept for decompressed batches."""
        return self.buffer_memory // 4

    @property
    def arrow_rows(self) -> int:
        """The most rows of one poll_arrow(), as max.poll.records: records that are worked on one by one are few."""
        return -1 if self.max_poll_records == _MAX_POLL_RECORDS else self.max_poll_records

    @property
    def hand_bytes(self) -> int:
        """What of ``buffer.memory`` is kept for records decoded ahead of small polls."""
        return min(self.buffer_memory // 64, 1 << 20)

    @property
    def auto_commit(self) -> bool:
        """Whether there is anything to commit by itself."""
        return self.enable_auto_commit and self.group_id is not None

    @property
    def reset_duration_ms(self) -> int | None:
        """How far back ``auto.offset.reset=by_duration`` goes; None for the other policies."""
        word, _, duration = self.auto_offset_reset.partition(":")
        return duration_ms(duration) if word == _BY_DURATION else None

    def _contradictions(self, given: frozenset[str]) -> Iterator[str]:
        yield from ClientConfig._contradictions(self, given)
        yield from self._check_protocol(given)
        yield from self._check_reset()
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            yield (
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below session.timeout.ms "
                f"({self.session_timeout_ms}); a third of it is usual"
            )
        if self.prefetch_heuristic != "bytes" and self.max_poll_records < 1:
            yield (
                f"prefetch.heuristic={self.prefetch_heuristic} needs max.poll.records as a number to fill a poll with; "
                "without a cap, and with auto, use bytes"
            )
        if "max.poll.records.share" in given and self.max_poll_records != AUTO:
            yield "max.poll.records.share means nothing without max.poll.records=auto"
        if self.group_id == "":
            yield "group.id is empty; give it a name, or leave it out to use assign()"
        if self.group_id is None and self.enable_auto_commit and "enable.auto.commit" in given:
            yield "enable.auto.commit needs group.id: offsets are committed for a group"
        if self.group_instance_id is not None and self.group_id is None:
            yield "group.instance.id needs group.id"
        name = self.group_instance_id
        if name is not None and (name in (".", "..") or not _INSTANCE.fullmatch(name)):
            yield (
                f"group.instance.id: {name!r} is no name that brokers take: 1 to 249 letters (a-z, A-Z), digits, dots, "
                "underscores and hyphens, and not '.' or '..'"
            )
        yield from self._check_deserializers(given)
        # The default may be above a small buffer: fetches never ask for more than there is room for.
        if self.max_partition_fetch_bytes > self.buffer_memory and "max.partition.fetch.bytes" in given:
            yield ("max.partition.fetch.bytes is above buffer.memory, so no full fetch would ever fit")

    def _check_reset(self) -> Iterator[str]:
        word, colon, duration = self.auto_offset_reset.partition(":")
        word = word.strip().lower()
        if word == _BY_DURATION and colon:
            try:
                duration_ms(duration)
            except ValueError as error:
                yield (
                    f"auto.offset.reset: {error}; write for instance by_duration:PT1H (an hour), PT30M, P7D or P1DT12H"
                )
        elif colon or word not in ("earliest", "latest", "none"):
            if (called := foreign.reset(word)) is not None:
                yield f"auto.offset.reset: {word!r} is librdkafka's word: here it is {called!r}"
            else:
                yield (
                    f"auto.offset.reset: {self.auto_offset_reset!r} is not one of earliest, latest, none, "
                    "by_duration:<duration>, e.g. by_duration:PT1H"
                )
        object.__setattr__(self, "auto_offset_reset", word + colon + duration.strip().upper())

    def _check_deserializers(self, given: frozenset[str]) -> Iterator[str]:
        """A policy for bad records that can never be needed, or never be kept, is a mistake."""
        decodes = self.key_deserializer is not None or self.value_deserializer is not None
        if "deserialization.errors" in given and self.deserialization_errors != "raise" and not decodes:
            yield ("deserialization.errors needs key.deserializer or value.deserializer: bytes are never bad")
        if (self.deserialization_errors == "dead-letter") != (self.dead_letter_topic is not None):
            yield ("deserialization.errors=dead-letter and dead.letter.topic belong together; one is missing")

    def _check_protocol(self, given: frozenset[str]) -> Iterator[str]:
        """Each group protocol has keys that mean nothing to the other (C4)."""
        if self.group_protocol == "consumer":
            for name, instead in _CLASSIC_ONLY.items():
                if name in given:
                    yield (
                        f"{name} is a key of the classic protocol, where the client decides; with "
                        f"group.protocol=consumer the broker does: {instead}, or set group.protocol=classic"
                    )
        elif self.group_protocol == "auto" and not given.isdisjoint(_CLASSIC_ONLY):
            object.__setattr__(self, "group_protocol", "classic")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            yield (
                "group.remote.assignor needs group.protocol=consumer, and no key of the classic protocol, whose own "
                "is partition.assignment.strategy"
            )


_INSTANCE: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BY_DURATION: Final = "by_duration"
_CLASSIC_ONLY: Final[Mapping[str, str]] = {
    "session.timeout.ms": "leave it out (group.consumer.session.timeout.ms on the broker)",
    "heartbeat.interval.ms": "leave it out (group.consumer.heartbeat.interval.ms on the broker)",
    "partition.assignment.strategy": "name a broker's assignor in group.remote.assignor",
}
