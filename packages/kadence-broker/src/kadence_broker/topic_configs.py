"""Configuration that a topic may be created with: all of Kafka 4.4's names, defaults and bounds (TopicConfig there).

Those with an effect here are in `kadence_broker.storage.config.LogConfig`; the others are kept and returned, since
tools set them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kadence_broker.settings import Settings
from kadence_broker.storage.config import MOST_DECOMPRESSED

__all__ = [
    "SYNONYMS",
    "TOPIC_KEYS",
    "UNTOLD_DEFAULTS",
    "TopicKey",
    "check_topic_config",
    "contradiction",
    "parsed",
    "topic_defaults",
]

_MOST: Final = {"INT": 2**31 - 1, "LONG": 2**63 - 1}
_LEAST_SEGMENT: Final = 1024 * 1024
_REPLICAS: Final = re.compile(r"|\*|\s*\d+:\d+(\s*,\s*\d+:\d+)*\s*")


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One name.

    Attributes:
        kind: BOOLEAN, STRING, INT, LONG, DOUBLE or LIST.
        low, high: bounds of a number, None without. choices: of a STRING or of a LIST's parts, empty for any.
        pattern: of a whole LIST, None for any.
    """

    default: str
    kind: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def fault(self, value: str) -> str | None:
        """The error of ``value``, in Kafka's words; None if it is valid."""
        if self.kind == "BOOLEAN":
            known = value.strip().lower() in ("true", "false")
            return None if known else "Expected value to be either true or false"
        if self.kind in ("STRING", "LIST"):
            return self._choice_fault(value)
        try:
            # Python's "1_000" is no number to Java.
            number = self._number("" if "_" in value else value)
        except ValueError:
            return f"Not a number of type {self.kind}"
        most = _MOST.get(self.kind)
        if most is not None and not -most - 1 <= number <= most:
            return f"Not a number of type {self.kind}"
        if self.low is not None and number < self.low:
            return f"Value must be at least {self.low:g}"
        if self.high is not None and number > self.high:
            return f"Value must be no more than {self.high:g}"
        return None

    def _choice_fault(self, value: str) -> str | None:
        if self.pattern is not None and not self.pattern.fullmatch(value):
            return "Must be *, or replicas as partition:broker with commas between them"
        if not self.choices:
            return None
        parts = self._parts(value) if self.kind == "LIST" else [value.strip()]
        if all(each in self.choices for each in parts):
            return None
        return f"String must be one of: {', '.join(self.choices)}"

    def _parts(self, value: str) -> list[str]:
        """The parts of a LIST; where it chooses among some, each once."""
        parts = [each.strip() for each in value.split(",")] if value.strip() else []
        return list(dict.fromkeys(parts)) if self.choices else parts

    def _number(self, value: str) -> float:
        return float(value) if self.kind == "DOUBLE" else int(value)

    def parsed(self, value: str) -> str:
        """The value as Kafka parses and returns it."""
        if self.kind == "LIST":
            return ",".join(self._parts(value))
        if self.kind == "STRING":
            return value.strip()
        return value.strip().lower() if self.kind == "BOOLEAN" else str(self._number(value))


def _number(kind: str, default: float, low: float | None = None, high: float | None = None) -> TopicKey:
    return TopicKey(str(default), kind, low, high)


TOPIC_KEYS: Final[Mapping[str, TopicKey]] = {
    "cleanup.policy": TopicKey("delete", "LIST", choices=("compact", "delete")),
    "compression.gzip.level": _number("INT", -1, -1, 9),
    "compression.lz4.level": _number("INT", 9, 1, 17),
    "compression.type": TopicKey(
        "producer", "STRING", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.zstd.level": _number("INT", 3, -131_072, 22),
    "delete.retention.ms": _number("LONG", 86_400_000, 0),
    "errors.deadletterqueue.group.enable": TopicKey("false", "BOOLEAN"),
    "file.delete.delay.ms": _number("LONG", 60_000, 0),
    "flush.messages": _number("LONG", 2**63 - 1, 1),
    "flush.ms": _number("LONG", 2**63 - 1, 0),
    "follower.replication.throttled.replicas": TopicKey("", "LIST", pattern=_REPLICAS),
    "index.interval.bytes": _number("INT", 4_096, 0),
    "leader.replication.throttled.replicas": TopicKey("", "LIST", pattern=_REPLICAS),
    "local.retention.bytes": _number("LONG", -2, -2),
    "local.retention.ms": _number("LONG", -2, -2),
    "max.compaction.lag.ms": _number("LONG", 2**63 - 1, 1),
    "max.decompressed.message.bytes": _number("INT", MOST_DECOMPRESSED, 1, MOST_DECOMPRESSED),
    "max.message.bytes": _number("INT", 1_048_588, 0),
    "message.timestamp.after.max.ms": _number("LONG", 3_600_000, 0),
    "message.timestamp.before.max.ms": _number("LONG", 2**63 - 1, 0),
    "message.timestamp.type": TopicKey("CreateTime", "STRING", choices=("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": _number("DOUBLE", 0.5, 0, 1),
    "min.compaction.lag.ms": _number("LONG", 0, 0),
    "min.insync.replicas": _number("INT", 1, 1),
    "preallocate": TopicKey("false", "BOOLEAN"),
    "remote.copy.lag.bytes": _number("LONG", -1, -1),
    "remote.copy.lag.ms": _number("LONG", 0, -1),
    "remote.log.copy.disable": TopicKey("false", "BOOLEAN"),
    "remote.log.delete.on.disable": TopicKey("false", "BOOLEAN"),
    "remote.storage.enable": TopicKey("false", "BOOLEAN"),
    "retention.bytes": _number("LONG", -1),
    "retention.ms": _number("LONG", 604_800_000, -1),
    "segment.bytes": _number("INT", 1_073_741_824, _LEAST_SEGMENT),
    "segment.index.bytes": _number("INT", 10_485_760, 4),
    "segment.jitter.ms": _number("LONG", 0, 0),
    "segment.ms": _number("LONG", 604_800_000, 1),
    "unclean.leader.election.enable": TopicKey("false", "BOOLEAN"),
}

SYNONYMS: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
    "remote.copy.lag.ms": "log.remote.copy.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
}
"""The broker's key that gives a topic's default, where its name is another."""

UNTOLD_DEFAULTS: Final = frozenset(
    {
        "errors.deadletterqueue.group.enable",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.ms",
        "segment.jitter.ms",
        "segment.ms",
    }
)
"""Topic keys whose default has no synonym in Kafka: no key of the broker sets it alone."""


def topic_defaults(settings: Settings) -> dict[str, tuple[str, bool]]:
    """The defaults of a topic's configuration, by name, each with whether the broker's configuration sets it."""
    brokers = settings.describe()
    defaults = {}
    for name, known in TOPIC_KEYS.items():
        value = brokers.get(SYNONYMS.get(name, name))
        defaults[name] = (known.default, False) if value is None else (value, value != known.default)
    return defaults


def check_topic_config(config: Mapping[str, str | None]) -> str | None:
    """The error of a topic's configuration, as a sentence; None if it is valid."""
    for name, value in config.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            near = difflib.get_close_matches(name, TOPIC_KEYS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return f"Unknown topic config name: {name}.{hint}"
        if value is None:
            return f"Null value not supported for topic configs: {name}"
        fault = key.fault(value)
        if fault is not None:
            return f"Invalid value {value} for configuration {name}: {fault}"
        if name == "remote.storage.enable" and value.strip().lower() == "true":
            return "remote.storage.enable=true is not served: there is no tiered storage. Leave it at false."
    return contradiction(config)


def parsed(config: Mapping[str, str]) -> dict[str, str]:
    """A topic's configuration, which passed `check_topic_config`, as Kafka returns it."""
    return {name: TOPIC_KEYS[name].parsed(value) for name, value in config.items()}


def contradiction(config: Mapping[str, str | None]) -> str | None:
    """The settings of a topic, each valid by itself, that contradict each other; None if none do."""
    least, most = (
        int(config.get(name) or TOPIC_KEYS[name].default)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        return f"min.compaction.lag.ms ({least}) is more than max.compaction.lag.ms ({most})"
    return None
