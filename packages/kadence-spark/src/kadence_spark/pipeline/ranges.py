"""Offset ranges of a pipeline's topics, and the options with which ``spark.read`` reads exactly these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kadence.environment import Environment
from kadence.errors import KafkaTimeoutError
from kadence.types import TopicPartition
from kadence_spark.pipeline.checkpoint import committed
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.model import Pipeline
from kadence_spark.source.clients import driver_client
from kadence_spark.source.offsets import to_shape
from kadence_spark.source.options import STREAM_ONLY, parse
from kadence_spark.source.start import check_existence, resolve

__all__ = ["Range", "batch_options", "check_reachable", "pending"]

REACHED_S: Final = 3.0
"""How long `check_reachable` tries to connect."""

_OF_STREAMS: Final = {
    "subscribe",
    "subscribepattern",
    "assign",
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    *(name.lower() for name in STREAM_ONLY),
}
"""Options of the source that do not apply, or conflict, if ranges are given."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``start`` to ``end``, without the end.

    Attributes:
        size: bytes of keys, values and headers, estimated from a sample; None: no sample.
    """

    partition: TopicPartition
    start: int
    end: int
    size: int | None = None


def batch_options(options: Mapping[str, str], ranges: Iterable[Range]) -> dict[str, str]:
    """The source's options for a batch query of these ranges."""
    chosen = sorted(ranges, key=lambda each: each.partition)
    kept = {name: value for name, value in options.items() if name.lower() not in _OF_STREAMS}
    topics: dict[str, list[int]] = {}
    for each in chosen:
        topics.setdefault(each.partition.topic, []).append(each.partition.partition)
    return kept | {
        "assign": json.dumps(topics),
        "startingOffsets": json.dumps(to_shape({each.partition: each.start for each in chosen})),
        "endingOffsets": json.dumps(to_shape({each.partition: each.end for each in chosen})),
    }


def check_reachable(pipeline: Pipeline, environment: Environment) -> None:
    """Fail soon if no broker of the file can be reached; `pending` would wait ``default.api.timeout.ms``.

    Raises:
        ConfigError: contradictory options. KafkaTimeoutError: no address can be connected to.
        AuthenticationError: a broker refuses the credentials.
    """
    brokers = driver_client(parse(environment.fill_all(pipeline.source_options()), streaming=True))
    try:
        brokers.check_reachable(REACHED_S)
    except KafkaTimeoutError as problem:
        raise KafkaTimeoutError(environment.hide(str(problem))) from None
    finally:
        brokers.close()


def pending(pipeline: Pipeline, environment: Environment, files: Files) -> tuple[str, list[Range]]:
    """The ranges that a run would read now: the origin of the starts, in words, and a range for each partition.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        ConfigError: options that do not fit the topics.
    """
    options = parse(environment.fill_all(pipeline.source_options()), streaming=True)
    checkpoint = environment.fill(pipeline.checkpoint).rstrip("/")
    done = committed(files, checkpoint)
    brokers = driver_client(options)
    try:
        leaders = sorted(brokers.partitions(options.topics).leaders)
        check_existence(options.topics, leaders)
        if done is None:
            origin, starts = "the source's options", resolve(options.starting, leaders, brokers)
        else:
            first = brokers.log_starts([each for each in leaders if each not in done.offsets])
            origin, starts = f"batch {done.batch} of the checkpoint", {**first, **done.offsets}
        ends = brokers.log_ends(leaders)
        spans = {p: (starts[p], ends[p]) for p in leaders if ends[p] > starts[p]}
        samples = brokers.sample(spans) if spans else {}
        sizes = {p: total * (spans[p][1] - spans[p][0]) // span for p, (total, span) in samples.items()}
        return origin, [Range(p, starts[p], max(ends[p], starts[p]), sizes.get(p)) for p in leaders]
    finally:
        brokers.close()
