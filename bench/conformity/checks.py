"""The checks of `bench/parity.py`, as data: what to read of which topic, and what is expected of the two sources.

``$topic`` in an option is the check's topic, other ``$names`` are what its set-up has learned (times, mostly).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["CHECKS", "Back", "Check", "Differs", "Do", "Expected", "Read", "Refused", "Same", "Stream"]

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Read:
    """A batch query."""

    options: Options = field(default_factory=dict)
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream over the check's checkpoint until it ends.

    Attributes:
        by: the format that runs it for both sides; "" is each side's own.
    """

    options: Options = field(default_factory=dict)
    trigger: str = "availableNow"
    by: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    """Something happens to the topic. It is named in `topics.ACTIONS`."""

    action: str


@dataclass(frozen=True, slots=True)
class Back:
    """``kadence checkpoint to-connector`` on the checkpoint of each side."""


Step = Read | Stream | Do | Back


@dataclass(frozen=True, slots=True)
class Same:
    """The same rows; of a stream also the same numbers of rows in each batch, where asked."""

    batches: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Both end the last step with an error, and ours says this."""

    saying: str


@dataclass(frozen=True, slots=True)
class Differs:
    """By design: what each side does ("rows" or "error") in the last step, and why."""

    theirs: str
    ours: str
    why: str


Expected = Same | Refused | Differs


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    setup: str
    steps: tuple[Step, ...]
    expected: Expected = field(default_factory=Same)


def reads(name: str, setup: str, expected: Expected | None = None, /, **options: str) -> Check:
    """One batch query; ``_`` stands for ``.`` in names of options."""
    named = {key.replace("_", "."): value for key, value in options.items()}
    return Check(name, setup, (Read(named),), expected or Same())


def streams(name: str, setup: str, *steps: Step, expected: Expected | None = None) -> Check:
    return Check(name, setup, steps, expected or Same())


EARLIEST: Final = {"startingOffsets": "earliest"}
THREE_FROM: Final = '{"$topic":{"0":30,"1":-2,"2":60}}'
THREE_TO: Final = '{"$topic":{"0":70,"1":-1,"2":60}}'
TIMES: Final = '{"$topic":{"0":$t50,"1":$t50,"2":$t50}}'
LATER: Final = '{"$topic":{"0":$t70,"1":$t70,"2":$t50}}'
COMMITTED: Final = {"kafka_isolation_level": "read_committed"}
STREAM_COMMITTED: Final = {"kafka.isolation.level": "read_committed", **EARLIEST}

RANGES: Final = (
    reads("everything by default", "plain"),
    reads("words in any case", "plain", startingOffsets="EARLIEST", endingOffsets="Latest"),
    reads("from offsets, with -2", "plain", startingOffsets=THREE_FROM),
    reads("to offsets, with -1", "plain", endingOffsets=THREE_TO),
    reads("between offsets", "plain", startingOffsets=THREE_FROM, endingOffsets=THREE_TO),
    reads(
        "from an end to itself",
        "one",
        startingOffsets='{"$topic":{"0":30}}',
        endingOffsets='{"$topic":{"0":30}}',
    ),
    reads("from a time", "one", startingTimestamp="$t30"),
    reads("to a time", "plain", endingTimestamp="$t50"),
    reads("to a time beyond the end", "plain", endingTimestamp="$late"),
    reads("from times", "plain", startingOffsetsByTimestamp=TIMES),
    reads("to times", "plain", endingOffsetsByTimestamp=TIMES),
    reads("between times", "plain", startingOffsetsByTimestamp=TIMES, endingOffsetsByTimestamp=LATER),
    reads(
        "from a time beyond the end, to be its end",
        "plain",
        startingTimestamp="$late",
        startingOffsetsByTimestampStrategy="latest",
    ),
    reads(
        "from a time that some partitions reach",
        "plain",
        startingTimestamp="$t70",
        startingOffsetsByTimestampStrategy="LATEST",
    ),
    reads(
        "a time goes before times, and both before offsets",
        "plain",
        startingTimestamp="$t50",
        startingOffsetsByTimestamp='{"$topic":{"0":1}}',
        startingOffsets="latest",
        endingTimestamp="$t70",
        endingOffsetsByTimestamp='{"$topic":{"0":1}}',
        endingOffsets="earliest",
    ),
    reads(
        "from a time among times in disorder", "disordered", startingTimestamp="$t50", endingTimestamp="$t90"
    ),
    reads("from a time of the broker's", "appended", startingTimestamp="$middle"),
    reads("partitions without a record", "sparse"),
    reads("a topic without a record", "empty"),
)

TOPICS: Final = (
    reads("two topics", "pair", subscribe="$topic-a1, $topic-b2,,"),
    reads("a pattern found in a name", "pair", subscribe="", subscribePattern="$topic-"),
    reads("a pattern bound to the whole name", "pair", subscribe="", subscribePattern="^$topic-[a-z]1$$"),
    reads(
        "a pattern with a class and a possessive quantifier",
        "pair",
        subscribe="",
        subscribePattern=r"^$topic-\p{Lower}++\d",
    ),
    reads(
        "a pattern with a named group and a quotation",
        "pair",
        subscribe="",
        subscribePattern=r"\Q$topic\E-(?<x>b)",
    ),
    reads("a pattern that nothing has", "pair", subscribe="", subscribePattern="^$topic-zzz"),
    reads("some partitions", "plain", subscribe="", assign='{"$topic":[0,2]}'),
    reads(
        "some partitions, from offsets",
        "plain",
        subscribe="",
        assign='{"$topic":[0,2]}',
        startingOffsets='{"$topic":{"0":30,"2":-2}}',
    ),
    reads(
        "a partition that does not exist",
        "plain",
        Differs("rows", "error", "a partition that was named is not left out without a word"),
        subscribe="",
        assign='{"$topic":[0,9]}',
    ),
    reads("a topic that does not exist", "plain", Refused("no-such-topic"), subscribe="no-such-topic"),
)

ROWS: Final = (
    reads("headers, empty, null and repeated", "plain", includeHeaders="true"),
    reads("codecs: none, gzip, snappy, lz4, zstd", "compressed", includeHeaders="true"),
    reads("records near a megabyte", "large"),
    reads("committed records of transactions", "transactional", **COMMITTED),
    reads("all records of transactions", "transactional"),
    reads("committed records, in tasks without any", "transactional", minPartitions="9", **COMMITTED),
    reads(
        "committed records, from within an aborted transaction",
        "transactional",
        startingOffsets='{"$topic":{"0":25}}',
        **COMMITTED,
    ),
    reads("a compacted topic", "compacted"),
    reads("a compacted topic in many tasks", "compacted", minPartitions="7"),
    reads("at least so many tasks", "plain", minPartitions="8"),
    reads("at most so many records to a task", "plain", maxRecordsPerPartition="17"),
    reads("both", "plain", minPartitions="5", maxRecordsPerPartition="30"),
    reads("fewer tasks than partitions", "plain", minPartitions="1"),
    reads("records deleted below the start", "gap"),
    reads(
        "records deleted that were to be read, to fail",
        "gap",
        Refused("were deleted before they were read"),
        startingOffsets='{"$topic":{"0":10,"1":0,"2":0}}',
    ),
    reads(
        "records deleted that were to be read, to go on",
        "gap",
        startingOffsets='{"$topic":{"0":10,"1":0,"2":0}}',
        failOnDataLoss="false",
    ),
    reads("records deleted, from a time", "gap", startingTimestamp="$t10"),
    reads(
        "an end beyond the log, to fail",
        "one",
        Refused("ends at 100, below offset 150"),
        endingOffsets='{"$topic":{"0":150}}',
        kafkaConsumer_pollTimeoutMs="3000",
    ),
    reads(
        "a start beyond the log, to fail",
        "one",
        Refused("ends at 100, below offset 150"),
        startingOffsets='{"$topic":{"0":150}}',
        kafkaConsumer_pollTimeoutMs="3000",
    ),
    reads(
        "an end below what was deleted",
        "gap",
        Refused("begins at 40, above offset 20"),
        endingOffsets='{"$topic":{"0":20,"1":-1,"2":-1}}',
    ),
    reads(
        "settings of the Java client",
        "plain",
        kafka_client_dns_lookup="use_all_dns_ips",
        kafka_metric_reporters="",
        kafka_sasl_mechanism="PLAIN",
        kafka_ssl_truststore_type="JKS",
        kafka_max_poll_records="50",
        kafka_fetch_max_wait_ms="100",
        kafka_max_partition_fetch_bytes="20000",
    ),
    reads("a group's name and a prefix", "plain", kafka_group_id="parity-batch", groupIdPrefix="parity"),
    Check(
        "a schema of the user's",
        "plain",
        (Read(schema="offset bigint, value binary"),),
        Differs("error", "rows", "a schema chooses columns"),
    ),
)

REFUSALS: Final = (
    reads("no topics", "plain", Refused("subscribe, subscribePattern and assign"), subscribe=""),
    reads("topics in two ways", "plain", Refused("subscribe and assign"), assign='{"$topic":[0]}'),
    reads("no topic in a list", "plain", Refused("subscribe"), subscribe=" , "),
    reads("an empty pattern", "plain", Refused("subscribePattern"), subscribe="", subscribePattern=" "),
    reads(
        "a pattern that is none", "plain", Refused("subscribePattern"), subscribe="", subscribePattern="a("
    ),
    reads("partitions that are no JSON", "plain", Refused("assign"), subscribe="", assign="$topic"),
    reads("a batch from latest", "plain", Refused("startingOffsets"), startingOffsets="latest"),
    reads("a batch from -1", "one", Refused("startingOffsets"), startingOffsets='{"$topic":{"0":-1}}'),
    reads("a batch to earliest", "plain", Refused("endingOffsets"), endingOffsets="earliest"),
    reads("a batch to -2", "one", Refused("endingOffsets"), endingOffsets='{"$topic":{"0":-2}}'),
    reads(
        "offsets that lack a partition",
        "plain",
        Refused("startingOffsets"),
        startingOffsets='{"$topic":{"0":1}}',
    ),
    reads(
        "offsets with a partition too many",
        "one",
        Refused("startingOffsets"),
        startingOffsets='{"$topic":{"0":1,"1":1}}',
    ),
    reads("offsets that are no JSON", "plain", Refused("startingOffsets"), startingOffsets="{"),
    reads("a word that nobody knows", "plain", Refused("startingOffsets"), startingOffsets="newest"),
    reads(
        "an end before the start, of offsets",
        "one",
        Refused("end before it starts"),
        startingOffsets='{"$topic":{"0":60}}',
        endingOffsets='{"$topic":{"0":40}}',
    ),
    reads(
        "an end before the start, of times",
        "plain",
        Refused("end before it starts"),
        startingOffsetsByTimestamp=LATER,
        endingOffsetsByTimestamp='{"$topic":{"0":1,"1":1,"2":1}}',
    ),
    reads(
        "an end before the start, of one time each",
        "plain",
        Refused("end before it starts"),
        startingTimestamp="$t50",
        endingTimestamp="1",
    ),
    reads("a time beyond the end", "plain", Refused("startingTimestamp"), startingTimestamp="$late"),
    reads("a time that is none", "plain", Refused("startingTimestamp"), startingTimestamp="noon"),
    reads("a strategy that is none", "plain", Refused("Strategy"), startingOffsetsByTimestampStrategy="hope"),
    reads("no tasks", "plain", Refused("minPartitions"), minPartitions="0"),
    reads("no records to a task", "plain", Refused("maxRecordsPerPartition"), maxRecordsPerPartition="0"),
    reads("neither true nor false", "plain", Refused("failOnDataLoss"), failOnDataLoss="maybe"),
    reads(
        "kafka.auto.offset.reset", "plain", Refused("kafka.auto.offset.reset"), kafka_auto_offset_reset="none"
    ),
    reads("kafka.key.deserializer", "plain", Refused("kafka.key.deserializer"), kafka_key_deserializer="x"),
    reads(
        "kafka.value.deserializer", "plain", Refused("kafka.value.deserializer"), kafka_value_deserializer="x"
    ),
    reads(
        "kafka.enable.auto.commit",
        "plain",
        Refused("kafka.enable.auto.commit"),
        kafka_enable_auto_commit="false",
    ),
    reads(
        "kafka.interceptor.classes",
        "plain",
        Refused("kafka.interceptor.classes"),
        kafka_interceptor_classes="x",
    ),
    reads("no servers", "plain", Refused("bootstrap.servers"), kafka_bootstrap_servers=""),
    reads(
        "an option that nobody knows",
        "plain",
        Differs("rows", "error", "a misspelt option is not passed over"),
        startingOffset="latest",
    ),
    streams(
        "a stream to offsets", "plain", Stream({"endingOffsets": "latest"}), expected=Refused("endingOffsets")
    ),
    streams(
        "a stream to times",
        "plain",
        Stream({"endingOffsetsByTimestamp": TIMES}),
        expected=Refused("endingOffsetsByTimestamp"),
    ),
    streams(
        "a stream to a time",
        "plain",
        Stream({"endingTimestamp": "$t50", **EARLIEST}),
        expected=Differs("rows", "error", "the connector passes over the option"),
    ),
    streams(
        "a least above a most",
        "plain",
        Stream({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}),
        expected=Refused("minOffsetsPerTrigger"),
    ),
)

STREAMS: Final = (
    streams("from earliest", "plain", Stream(EARLIEST)),
    streams("with headers", "plain", Stream({"includeHeaders": "true", **EARLIEST})),
    streams(
        "with a limit",
        "plain",
        Stream({"maxOffsetsPerTrigger": "100", **EARLIEST}),
        expected=Same(batches=True),
    ),
    streams(
        "with a limit and small shares",
        "sparse",
        Stream({"maxOffsetsPerTrigger": "3", **EARLIEST}),
        expected=Same(batches=True),
    ),
    streams("with a least", "plain", Stream({"minOffsetsPerTrigger": "1000", **EARLIEST})),
    streams(
        "in many tasks", "plain", Stream({"minPartitions": "7", "maxOffsetsPerTrigger": "90", **EARLIEST})
    ),
    streams(
        "once, whatever the limit",
        "plain",
        Stream({"maxOffsetsPerTrigger": "10", **EARLIEST}, trigger="once"),
        expected=Same(batches=True),
    ),
    streams("from latest by default", "one", Stream(), Do("more"), Stream()),
    streams("from offsets", "one", Stream({"startingOffsets": '{"$topic":{"0":70}}'})),
    streams("from -1", "one", Stream({"startingOffsets": '{"$topic":{"0":-1}}'}), Do("more"), Stream()),
    streams("a stream from a time", "one", Stream({"startingTimestamp": "$t30"})),
    streams(
        "a stream of some partitions",
        "plain",
        Stream({"subscribe": "", "assign": '{"$topic":[1]}', **EARLIEST}),
    ),
    streams("started again without news", "plain", Stream(EARLIEST), Stream(EARLIEST)),
    streams(
        "started again with other options",
        "one",
        Stream(EARLIEST),
        Do("more"),
        Stream({"startingOffsets": "latest", "maxOffsetsPerTrigger": "10"}),
        expected=Same(batches=True),
    ),
    streams("a partition more", "plain", Stream(EARLIEST), Do("growth"), Stream(EARLIEST)),
    streams(
        "a topic more",
        "pair",
        Stream({"subscribe": "", "subscribePattern": "$topic-", **EARLIEST}),
        Do("third"),
        Stream({"subscribe": "", "subscribePattern": "$topic-", **EARLIEST}),
    ),
    streams(
        "committed records, with a limit",
        "transactional",
        Stream({"maxOffsetsPerTrigger": "7", **STREAM_COMMITTED}),
    ),
    streams(
        "committed records, and one more transaction",
        "transactional",
        Stream(STREAM_COMMITTED),
        Do("another_transaction"),
        Stream(STREAM_COMMITTED),
    ),
    streams(
        "a compacted topic, with a limit", "compacted", Stream({"maxOffsetsPerTrigger": "20", **EARLIEST})
    ),
    streams(
        "records deleted unread, to fail",
        "one",
        Stream(EARLIEST),
        Do("retention"),
        Stream(EARLIEST),
        expected=Refused("were deleted before they were read"),
    ),
    streams(
        "records deleted unread, to go on",
        "one",
        Stream(EARLIEST),
        Do("retention"),
        Stream({"failOnDataLoss": "false", **EARLIEST}),
    ),
    streams("a group's name", "plain", Stream({"kafka.group.id": "$topic-group", **EARLIEST})),
    streams("the connector's checkpoint", "one", Stream(EARLIEST, by="kafka"), Do("more"), Stream(EARLIEST)),
    streams(
        "Kadence's checkpoint, gone on with by the connector",
        "one",
        Stream(EARLIEST),
        Do("more"),
        Stream(EARLIEST, by="kafka"),
        expected=Differs(
            "rows", "error", "the connector takes our notes beside the offsets for partitions that are gone"
        ),
    ),
    streams(
        "Kadence's checkpoint, written for the connector",
        "one",
        Stream(EARLIEST),
        Do("more"),
        Back(),
        Stream(EARLIEST, by="kafka"),
    ),
    streams(
        "the connector's checkpoint, broken off between batches",
        "plain",
        Stream({"maxOffsetsPerTrigger": "50", **EARLIEST}, trigger="once", by="kafka"),
        Do("growth"),
        Stream({"maxOffsetsPerTrigger": "50", **EARLIEST}),
    ),
    streams("the connector's checkpoint, begun at latest", "one", Stream(by="kafka"), Do("more"), Stream()),
)

CHECKS: Final = {"range": RANGES, "topics": TOPICS, "rows": ROWS, "refusal": REFUSALS, "stream": STREAMS}
"""By kind."""
