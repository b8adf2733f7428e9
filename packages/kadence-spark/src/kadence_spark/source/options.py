"""Options of the data source: those of Spark's own Kafka connector under the same names, and a few of Kadence's.

All options are parsed and checked here, once, to frozen values. Options that the connector refuses are refused, options
that it ignores with a warning are ignored with a warning, and unknown options are refused with the nearest known one.
Spark passes all option keys in lower case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kadence.config import ConsumerConfig, keys
from kadence.errors import ConfigError
from kadence.logs import logger
from kadence_spark.client_settings import PREFIX, ClientSettings, Side, client_settings
from kadence_spark.decode import options as decode
from kadence_spark.decode.options import DecodeOptions
from kadence_spark.numbers import LARGEST, whole_number
from kadence_spark.option_names import OF_SOURCE
from kadence_spark.parallelism import known_parallelism
from kadence_spark.source.planning import TaskSize
from kadence_spark.source.start import (
    Everywhere,
    Found,
    Place,
    Topics,
    offsets_place,
    read_assign,
    read_pattern,
    read_subscribe,
    timestamp_place,
    timestamps_place,
)

__all__ = ["CLIENT", "STREAM_ONLY", "SourceOptions", "parse", "read_client"]

_log = logger("kadence.spark")

_NOBODY_JOINS: Final = "partitions belong to the query, which does not join the group"
_OF_PRODUCERS: Final = "it is a key of the producer"

CLIENT: Final = Side(
    table=ConsumerConfig,
    refused={
        "auto.offset.reset": "use startingOffsets for the start of a query, and failOnDataLoss for lost records",
        "key.deserializer": "keys are binary; the option key.format decodes them",
        "value.deserializer": "values are binary; the option value.format decodes them",
        "enable.auto.commit": "commitOffsets=true commits offsets to kafka.group.id when a micro-batch is in the sink",
        "interceptor.classes": "interceptors of the Java client cannot run here",
    },
    ignored={
        "group.instance.id": _NOBODY_JOINS,
        **dict.fromkeys(
            (
                "key.serializer",
                "partitioner.class",
                "partitioner.ignore.keys",
                "retries",
                "transaction.timeout.ms",
                "transactional.id",
                "value.serializer",
            ),
            _OF_PRODUCERS,
        ),
    },
)
"""The client settings of the source."""

_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STREAM_ONLY: Final = (
    "adoptTopicIds",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "idlePollMs",
    "brokerTimeoutMs",
    "commitOffsets",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options that a batch ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of one query, checked.

    Attributes:
        client: Kafka's keys for the clients, without group.id. Not in the repr, because there may be passwords.
        group_id: the group for commits, and for ``committed``.
        decode: how keys and values are decoded; None: not at all.
        others: see `OF_SOURCE`, with their names in snake_case; None: no limit.
    """

    client: Mapping[str, str] = field(repr=False)
    topics: Topics
    starting: Place
    ending: Place
    group_id: str | None
    commit_offsets: bool
    group_id_prefix: str
    fail_on_data_loss: bool
    include_headers: bool
    adopt_topic_ids: Mapping[str, str]
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    target_records_per_task: int
    parallelism: int | None
    idle_poll_ms: int
    broker_timeout_ms: int
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    decode: DecodeOptions | None = None

    def task_size(self) -> TaskSize:
        """The options that decide the number of tasks."""
        return TaskSize(
            parallelism=self.parallelism or known_parallelism(),
            target=self.target_records_per_task,
            min_tasks=self.min_partitions,
            max_offsets=self.max_records_per_partition,
            max_bytes=self.max_bytes_per_partition,
        )


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read the options of one query.

    Raises:
        ConfigError: an unknown, refused, contradictory or invalid option; the message has the given value and advice.
    """
    values = _Values(given)
    client = read_client(given).values
    group_id = client.pop("group.id", None)
    if group_id is not None and not group_id.strip():
        raise ConfigError(
            "option kafka.group.id is empty; name the group, or leave it out", key="kafka.group.id"
        )
    values.check_mode(streaming=streaming)
    starting = _starting(values, streaming=streaming)
    if starting == Everywhere(Found.COMMITTED) and group_id is None:
        raise ConfigError(
            "startingOffsets=committed needs kafka.group.id, the group whose committed offsets are meant",
            key="startingOffsets",
        )
    commits = values.boolean("commitOffsets", default=False)
    if commits and streaming and group_id is None:
        raise ConfigError(
            "commitOffsets=true needs kafka.group.id, the group that gets the offsets", key="commitOffsets"
        )
    maximum = values.number("maxOffsetsPerTrigger")
    minimum = values.number("minOffsetsPerTrigger")
    if maximum is not None and minimum is not None and minimum > maximum:
        raise ConfigError(
            f"minOffsetsPerTrigger ({minimum}) is above maxOffsetsPerTrigger ({maximum})",
            key="minOffsetsPerTrigger",
        )
    prefix = "spark-kafka-source" if streaming else "spark-kafka-relation"
    return SourceOptions(
        client=client,
        topics=_topics(values),
        starting=starting,
        ending=_ending(values),
        group_id=group_id,
        commit_offsets=streaming and commits,
        group_id_prefix=values.text("groupIdPrefix") or prefix,
        fail_on_data_loss=values.boolean("failOnDataLoss", default=True),
        include_headers=values.boolean("includeHeaders", default=False),
        adopt_topic_ids=_topic_ids(values.text("adoptTopicIds") or "") if streaming else {},
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=values.duration("maxTriggerDelay", 15 * 60_000),
        max_bytes_per_trigger=values.size("maxBytesPerTrigger"),
        min_partitions=values.number("minPartitions"),
        max_records_per_partition=values.number("maxRecordsPerPartition"),
        max_bytes_per_partition=values.size("maxBytesPerPartition"),
        target_records_per_task=values.number("targetRecordsPerTask") or 500_000,
        parallelism=values.number("parallelism"),
        idle_poll_ms=values.number("idlePollMs", low=0, default=500) or 0,
        broker_timeout_ms=values.number("brokerTimeoutMs", default=300_000) or 0,
        poll_timeout_ms=values.number("kafkaConsumer.pollTimeoutMs", default=120_000) or 0,
        offset_retries=values.number("fetchOffset.numRetries", low=0, default=3) or 0,
        offset_retry_interval_ms=values.number("fetchOffset.retryIntervalMs", low=0, default=1_000) or 0,
        decode=decode.parse(given),
    )


def read_client(given: Mapping[str, str]) -> ClientSettings:
    """The ``kafka.*`` options as Kafka's keys; checks that all others are known.

    Raises:
        ConfigError: an unknown option, a refused key, or a value that the client refuses.
    """
    known = {name.lower() for name in OF_SOURCE}
    for name in given:
        if not name.lower().startswith(PREFIX) and name.lower() not in known:
            raise ConfigError(_unknown(name), key=name)
    polled = [text for name, text in given.items() if name.lower() == "kafka.max.poll.records"]
    if polled and not re.fullmatch(r"\s*-?\d+\s*", polled[0]):
        raise ConfigError(
            f"option kafka.max.poll.records: {polled[0]!r} is not a whole number; a task needs no measuring of "
            "its pace, so leave it out, or say how many rows an Arrow batch may have",
            key="kafka.max.poll.records",
        )
    return client_settings(given, CLIENT)


def _unknown(name: str) -> str:
    refused = {each.lower(): advice for each, advice in decode.INSTEAD.items()}
    if name.lower() in refused:
        return f"option {name} of from_json is not taken here: {refused[name.lower()]}"
    client_keys = {key.name for key in keys(ConsumerConfig)} | set(CLIENT.refused)
    if name.lower() in client_keys:
        return (
            f"unknown option {name!r}: did you mean 'kafka.{name.lower()}'? Client settings start with kafka."
        )
    if name.lower() in ("topic", "topics"):
        return f"unknown option {name!r}: the option subscribe names the topics to read; topic is for writing"
    if name.lower() == "pushdown":
        return (
            "the option pushdown is gone: Spark (4.1 to 4.3) keeps what filters left of a load() for its next query, "
            "which then lacked rows. Leave the option out. To read less, give startingOffsets, endingOffsets, "
            "startingTimestamp, endingTimestamp or assign"
        )
    if name.lower() in ("path", "paths"):
        return "load() takes no path: name the topics with the option subscribe, subscribePattern or assign"
    candidates = {option.lower(): option for option in OF_SOURCE}
    candidates |= {PREFIX + key: PREFIX + key for key in client_keys}
    near = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
    advice = (
        f"did you mean {candidates[near[0]]!r}?" if near else f"known are {', '.join(OF_SOURCE)} and kafka.*"
    )
    return f"unknown option {name!r}: {advice}"


def _topics(values: _Values) -> Topics:
    ways: dict[str, Callable[[str], Topics]] = {
        "subscribe": read_subscribe,
        "subscribePattern": read_pattern,
        "assign": read_assign,
    }
    chosen = [name for name in ways if values.text(name) is not None]
    if len(chosen) != 1:
        given = " and ".join(chosen) or "none of them"
        raise ConfigError(
            f"exactly one of the options subscribe, subscribePattern and assign is needed, not {given}"
        )
    return ways[chosen[0]](values.text(chosen[0]) or "")


def _topic_ids(text: str) -> dict[str, str]:
    """Ids by topic, in the notation of Kafka's tools."""
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    for pair in pairs:
        if not re.fullmatch(r"[A-Za-z0-9._-]+=[A-Za-z0-9_-]{22}", pair):
            raise ConfigError(
                f"option adoptTopicIds: {pair!r} is not topic=id, with an id such as Zc3yHpHcQ-SEaDD5bUYm7w; "
                "the error that tells of the new topic has the value",
                key="adoptTopicIds",
            )
    return dict(pair.split("=") for pair in pairs)


def _starting(values: _Values, *, streaming: bool) -> Place:
    """StartingTimestamp takes precedence over startingOffsetsByTimestamp, and that over startingOffsets."""
    strategy = (values.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}",
            key="startingOffsetsByTimestampStrategy",
        )
    text = values.text("startingTimestamp")
    if text is not None:
        return timestamp_place("startingTimestamp", text, or_latest=strategy == "latest")
    text = values.text("startingOffsetsByTimestamp")
    if text is not None:
        return timestamps_place("startingOffsetsByTimestamp", text, or_latest=strategy == "latest")
    text = values.text("startingOffsets")
    if text is None:
        return Everywhere(Found.LATEST if streaming else Found.EARLIEST)
    if not streaming and text.strip().lower() == Found.LATEST.value:
        raise ConfigError(
            "option startingOffsets: 'latest' is for streams; a batch that starts there has nothing to read. "
            "It may be earliest, committed, or JSON with an offset for each partition",
            key="startingOffsets",
        )
    allowed = (
        (Found.EARLIEST, Found.LATEST, Found.COMMITTED) if streaming else (Found.EARLIEST, Found.COMMITTED)
    )
    return offsets_place("startingOffsets", text, allowed)


def _ending(values: _Values) -> Place:
    text = values.text("endingTimestamp")
    if text is not None:
        return timestamp_place("endingTimestamp", text, or_latest=True)
    text = values.text("endingOffsetsByTimestamp")
    if text is not None:
        return timestamps_place("endingOffsetsByTimestamp", text, or_latest=True)
    return offsets_place("endingOffsets", values.text("endingOffsets") or "latest", (Found.LATEST,))


class _Values:
    """Typed access to the given strings, by the options' documented names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def check_mode(self, *, streaming: bool) -> None:
        """Refuse or ignore options without meaning in a stream or a batch, as the connector does."""
        if streaming:
            for name in _BATCH_ONLY:
                if self.text(name) is not None:
                    raise ConfigError(f"option {name} is for batch queries; a stream has no end", key=name)
        else:
            for name in STREAM_ONLY:
                if self.text(name) is not None:
                    _log.warning("option %s has no effect in a batch query", name)

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise self._wrong(name, text, "true or false")
        return text.strip().lower() == "true"

    def number(self, name: str, *, low: int = 1, default: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        number = whole_number(text)
        if number is None or number < low:
            raise self._wrong(name, text, f"a whole number >= {low}")
        return number

    def duration(self, name: str, default: int) -> int:
        """Spark's notation of times: 15m, 2h, 500ms, or a number of milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        units = {
            "": 1,
            "ms": 1,
            "s": 1_000,
            "m": 60_000,
            "min": 60_000,
            "h": 3_600_000,
            "d": 86_400_000,
        }
        return self._with_unit(name, text, units, "a time such as 15m, 30s or 500ms")

    def size(self, name: str) -> int | None:
        """Spark's notation of sizes: 64m, 1g, or a number of bytes; k is 1024."""
        text = self.text(name)
        if text is None:
            return None
        units = {"": 1, "b": 1}
        for power, letter in enumerate("kmgt", start=1):
            units[letter] = units[letter + "b"] = 1024**power
        return max(self._with_unit(name, text, units, "a size such as 64m, 1g or 500000"), 1)

    def _with_unit(self, name: str, text: str, units: Mapping[str, int], allowed: str) -> int:
        match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
        number = None if match is None else whole_number(match[1])
        if match is None or number is None or match[2] not in units:
            raise self._wrong(name, text, allowed)
        return min(number * units[match[2]], LARGEST)

    @staticmethod
    def _wrong(name: str, value: Any, allowed: str) -> ConfigError:
        return ConfigError(f"option {name}: {value!r} is not {allowed}", key=name)
