"""Options of the sink: those of Spark's own Kafka connector, and a few of Kadence's. Parsed and checked here, once.

Options of the source are left out and logged, because jobs often share one set of options between both.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kadence.config import ProducerConfig, keys
from kadence.errors import ConfigError
from kadence.logs import logger
from kadence_spark.client_settings import PREFIX, Side, client_settings
from kadence_spark.option_names import OF_SOURCE
from kadence_spark.stamp import Stamp

__all__ = ["OPTIONS", "REFUSED_CLIENT_KEYS", "SinkOptions", "parse"]

_log = logger("kadence.spark")

OPTIONS: Final[dict[str, str]] = {
    "topic": "The topic of all rows. It takes precedence over the column topic.",
    "transactions": "Whether tasks write in transactions, which the driver commits when all tasks have written. "
    "Default: false.",
    "transactionalIdPrefix": "The beginning of the sink's transactional ids and consumer groups. "
    "Default: spark-kafka-sink.",
    "txnAppId": "For batches with transactions: an id of the writer. Its last txnVersion is not written again.",
    "txnVersion": "For batches with transactions: the number of this write, higher than the last.",
    "includeHeaders": "No effect: the column headers is always written.",
}
"""Every option but ``kafka.*``, with a line for the reader."""

_UNCHANGED: Final = "keys and values are written unchanged; make the columns binary or string in Spark"
_BY_KEY: Final = "the column partition chooses, or the key by murmur2_random"
REFUSED_CLIENT_KEYS: Final = {
    "key.serializer": _UNCHANGED,
    "value.serializer": _UNCHANGED,
    "transactional.id": "each task needs its own; transactions=true makes them, transactionalIdPrefix names them",
    "interceptor.classes": "interceptors of the Java client cannot run here",
    "partitioner.class": "partitioners of the Java client cannot run here; the column partition chooses",
    "partitioner": _BY_KEY,
    "partitioner.ignore.keys": _BY_KEY,
}
"""Client settings that are refused, with the reason."""

_SIDE: Final = Side(table=ProducerConfig, refused=REFUSED_CLIENT_KEYS)

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself adds to those of a sink."""

_told: set[frozenset[str]] = set()
"""The options without effect that this process has logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All options of one query, checked.

    Attributes:
        client: Kafka's keys for the producers. Not in the repr, because there may be passwords.
        topic: of all rows; None: each row's column topic.
        transactional_prefix: of transactional.ids; None: no transactions.
        checkpoint: a short digest of a stream's checkpointLocation; "" without this option.
        stamp: the writer and number of a batch job's write; None: not given.
    """

    client: Mapping[str, str] = field(repr=False)
    topic: str | None
    transactional_prefix: str | None = None
    checkpoint: str = ""
    stamp: Stamp | None = None


def parse(given: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Read the options of one query.

    Args:
        streaming: whether a stream is written.

    Raises:
        ConfigError: an unknown, refused or invalid option; the message has the given value and advice.
    """
    values = {name.lower(): value for name, value in given.items()}
    _check_names(values)
    prefix = _transactional_prefix(values)
    stamp = Stamp.of_options(values, streaming=streaming)
    if stamp is not None and prefix is None:
        raise ConfigError("options txnAppId and txnVersion need transactions=true", key="txnAppId")
    settings = client_settings(given, _SIDE)
    if prefix is not None:
        _check_transactional(settings.values, prefix)
    # Spark reads the options of a stream's sink again for each batch.
    left_out = frozenset(settings.left_out)
    if left_out not in _told:
        _told.add(left_out)
        settings.tell()
    topic = values.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError(
            "option topic is empty; name the topic, or leave it out and give each row a column topic",
            key="topic",
        )
    return SinkOptions(
        client=settings.values,
        topic=None if topic is None else topic.strip(),
        transactional_prefix=prefix,
        checkpoint=_short(values.get("checkpointlocation", "")),
        stamp=stamp,
    )


def _short(place: str) -> str:
    return f"{zlib.crc32(place.encode()):08x}" if place else ""


def _check_transactional(client: Mapping[str, str], prefix: str) -> None:
    try:
        ProducerConfig.parse({**client, "transactional.id": prefix})
    except ConfigError as problem:
        raise ConfigError(f"option transactions=true: {problem}", key="transactions") from None


def _transactional_prefix(values: Mapping[str, str]) -> str | None:
    text = values.get("transactions", "false")
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"option transactions: {text!r} is not true or false", key="transactions")
    if text.strip().lower() == "false":
        return None
    return values.get("transactionalidprefix", "").strip() or "spark-kafka-sink"


def _check_names(given: Mapping[str, str]) -> None:
    ours = {name.lower(): name for name in OPTIONS}
    of_source = {name.lower(): name for name in OF_SOURCE}
    ignored: list[str] = []
    for name in given:
        if name.startswith(PREFIX) or name in ours or name in _OF_SPARK:
            continue
        if name not in of_source:
            raise ConfigError(_unknown(name), key=name)
        ignored.append(of_source[name])
    if ignored and (left_out := frozenset(ignored)) not in _told:
        _told.add(left_out)
        _log.warning("options of the source have no effect on the sink: %s", ", ".join(sorted(ignored)))


def _unknown(name: str) -> str:
    client_keys = {key.name for key in keys(ProducerConfig)} | set(REFUSED_CLIENT_KEYS)
    if name in client_keys:
        return f"unknown option {name!r}: did you mean '{PREFIX}{name}'? Client settings start with {PREFIX}"
    if name == "path":
        return "save() and start() take no path: name the topic with the option topic or a column topic"
    candidates = {option.lower(): option for option in OPTIONS} | {
        PREFIX + key: PREFIX + key for key in client_keys
    }
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    advice = (
        f"did you mean {candidates[near[0]]!r}?" if near else f"known are {', '.join(OPTIONS)} and {PREFIX}*"
    )
    return f"unknown option {name!r}: {advice}"
