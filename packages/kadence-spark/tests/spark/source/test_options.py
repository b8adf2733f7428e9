"""Every option of the connector, and what is said about those that cannot be."""

from __future__ import annotations

import logging

import pytest

from kadence.errors import ConfigError
from kadence.types import TopicPartition
from kadence_spark.option_names import OF_SOURCE
from kadence_spark.source.options import SourceOptions, parse
from kadence_spark.source.start import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Found,
    Partitions,
    Pattern,
    Subscription,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def stream(**given: str) -> SourceOptions:
    return parse({**SERVERS, "subscribe": "t", **given}, streaming=True)


def batch(**given: str) -> SourceOptions:
    return parse({**SERVERS, "subscribe": "t", **given}, streaming=False)


def refused(given: dict[str, str], streaming: bool = True) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(
            {name: text for name, text in {**SERVERS, "subscribe": "t", **given}.items() if text},
            streaming=streaming,
        )
    return str(caught.value)


def test_defaults_are_the_connectors() -> None:
    of_stream, of_batch = stream(), batch()
    assert of_stream.starting == Everywhere(Found.LATEST)
    assert of_batch.starting == Everywhere(Found.EARLIEST)
    assert of_batch.ending == Everywhere(Found.LATEST)
    assert of_stream.fail_on_data_loss
    assert of_batch.fail_on_data_loss
    assert not of_stream.include_headers
    assert of_stream.max_offsets_per_trigger is None
    assert of_stream.max_trigger_delay_ms == 15 * 60 * 1000
    assert of_stream.poll_timeout_ms == 120_000
    assert of_stream.group_id_prefix == "spark-kafka-source"
    assert of_batch.group_id_prefix == "spark-kafka-relation"
    assert of_stream.group_id is None
    assert not of_stream.commit_offsets


def test_names_are_read_in_any_case_as_spark_hands_them_over() -> None:
    options = parse(
        {**SERVERS, "subscribe": "t", "MAXOFFSETSPERTRIGGER": "5", "includeheaders": "TRUE"}, streaming=True
    )
    assert options.max_offsets_per_trigger == 5
    assert options.include_headers


def test_topics() -> None:
    assert stream(subscribe=" b, a ,,a").topics == Subscription(("a", "b"))
    pattern = parse({**SERVERS, "subscribePattern": "a.+"}, streaming=True).topics
    assert isinstance(pattern, Pattern)
    assert pattern.matches("abc")
    assert pattern.matches("xabc")
    assert not pattern.matches("xa")
    assigned = parse({**SERVERS, "assign": '{"t":[1,0,1]}'}, streaming=True).topics
    assert assigned == Partitions((T0, T1))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": ""}, "exactly one of the options subscribe, subscribePattern and assign"),
        ({"assign": '{"t":[0]}'}, "subscribe and assign"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "", "subscribePattern": "a("}, "no regular expression"),
        ({"subscribe": "", "subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribe": "", "assign": "t"}, "not JSON"),
        ({"subscribe": "", "assign": "[0]"}, "not a JSON object"),
        ({"subscribe": "", "assign": '{"t":["0"]}'}, "list of partition numbers"),
        ({"subscribe": "", "assign": '{"t":[true]}'}, "list of partition numbers"),
        ({"subscribe": "", "assign": "{}"}, "names no partition"),
    ],
)
def test_topics_that_cannot_be(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


def test_starting_offsets() -> None:
    assert stream(startingOffsets="Earliest").starting == Everywhere(Found.EARLIEST)
    assert stream(startingOffsets='{"t":{"0":23,"1":-1}}').starting == AtOffsets(
        "startingOffsets", {T0: 23, T1: Found.LATEST}
    )
    assert batch(startingOffsets='{"t":{"0":-2}}').starting == AtOffsets(
        "startingOffsets", {T0: Found.EARLIEST}
    )
    committed = stream(startingOffsets="committed", **{"kafka.group.id": "g"})
    assert committed.starting == Everywhere(Found.COMMITTED)
    assert not committed.commit_offsets


def test_starting_times_go_before_offsets() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"}
    assert stream(**by_time).starting == AtTimestamps("startingOffsetsByTimestamp", {T0: 5}, or_latest=False)
    assert stream(startingTimestamp="7", **by_time).starting == AtTimestamp(
        "startingTimestamp", 7, or_latest=False
    )
    lenient = stream(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest")
    assert lenient.starting == AtTimestamp("startingTimestamp", 7, or_latest=True)


def test_ending() -> None:
    assert batch(endingOffsets='{"t":{"0":-1,"1":9}}').ending == AtOffsets(
        "endingOffsets", {T0: Found.LATEST, T1: 9}
    )
    assert batch(endingTimestamp="7", endingOffsets="latest").ending == AtTimestamp(
        "endingTimestamp", 7, or_latest=True
    )
    assert batch(endingOffsetsByTimestamp='{"t":{"0":7}}').ending == AtTimestamps(
        "endingOffsetsByTimestamp", {T0: 7}, or_latest=True
    )


@pytest.mark.parametrize(
    ("streaming", "given", "said"),
    [
        (True, {"startingOffsets": "newest"}, "earliest, latest, committed"),
        (True, {"startingOffsets": '{"t":{"0":-3}}'}, ">= -2"),
        (True, {"startingOffsets": '{"t":{"0":1.5}}'}, "whole number"),
        (True, {"startingOffsets": '{"t":{"0":9223372036854775808}}'}, "whole number"),
        (True, {"startingOffsets": '{"t":{"' + "9" * 5000 + '":1}}'}, "not a partition number"),
        (True, {"startingOffsetsByTimestamp": "[" * 100_000}, "not JSON"),
        (True, {"startingTimestamp": "9" * 5000}, "not a time"),
        (True, {"startingOffsets": '{"t":{"x":1}}'}, "not a partition number"),
        (True, {"startingOffsets": '{"t":1}'}, "object of partitions"),
        (True, {"startingOffsets": "committed"}, "needs kafka.group.id"),
        (True, {"commitOffsets": "true"}, "commitOffsets=true needs kafka.group.id"),
        (False, {"startingOffsets": "latest"}, "'latest' is for streams"),
        (False, {"startingOffsets": '{"t":{"0":-1}}'}, "latest"),
        (False, {"endingOffsets": "earliest"}, "latest"),
        (False, {"endingOffsets": '{"t":{"0":-2}}'}, "earliest"),
        (True, {"endingOffsets": "latest"}, "for batch queries"),
        (True, {"endingTimestamp": "1"}, "for batch queries"),
        (True, {"endingOffsetsByTimestamp": "{}"}, "for batch queries"),
        (True, {"startingTimestamp": "noon"}, "milliseconds since 1970"),
        (True, {"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, ">= 0"),
        (True, {"startingOffsetsByTimestampStrategy": "hope"}, "error or latest"),
    ],
)
def test_places_that_cannot_be(streaming: bool, given: dict[str, str], said: str) -> None:
    assert said in refused(given, streaming)


def test_limits() -> None:
    options = stream(
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2h",
        maxBytesPerTrigger="64m",
        minPartitions="4",
        maxRecordsPerPartition="100",
        maxBytesPerPartition="64m",
        idlePollMs="0",
    )
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (1000, 10)
    assert options.max_trigger_delay_ms == 7_200_000
    assert options.max_bytes_per_trigger == 64 * 1024 * 1024
    assert (options.min_partitions, options.max_records_per_partition) == (4, 100)
    assert options.task_size().max_bytes == 64 * 1024 * 1024
    assert options.idle_poll_ms == 0
    assert stream(maxTriggerDelay="250").max_trigger_delay_ms == 250
    assert stream(maxBytesPerTrigger="1000").max_bytes_per_trigger == 1000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "whole number >= 1"),
        ({"maxOffsetsPerTrigger": "many"}, "'many'"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "whole number >= 1"),
        ({"maxTriggerDelay": "9" * 5000 + "s"}, "15m"),
        ({"maxTriggerDelay": "15x"}, "15m"),
        ({"maxBytesPerTrigger": "1x"}, "64m"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is above"),
        ({"kafka.group.id": " "}, "is empty"),
        ({"adoptTopicIds": "t"}, r"adoptTopicIds: 't' is not topic=id"),
        ({"adoptTopicIds": "t=true"}, r"adoptTopicIds: 't=true' is not topic=id"),
    ],
)
def test_values_that_cannot_be(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("maxOffsetPerTrigger", "did you mean 'maxOffsetsPerTrigger'"),
        ("startingoffset", "did you mean 'startingOffsets'"),
        ("bootstrap.servers", "did you mean 'kafka.bootstrap.servers'"),
        ("group.id", "did you mean 'kafka.group.id'"),
        ("topic", "the option subscribe names the topics"),
        ("topics", "the option subscribe names the topics"),
        ("path", "load() takes no path"),
        ("paths", "load() takes no path"),
        ("zzz", "known are subscribe"),
        ("kafka.fetch.min.byte", "did you mean 'fetch.min.bytes'"),
        ("timestampformat", "make the field a string in the schema, and use to_timestamp(field, form)"),
        ("columnNameOfCorruptRecord", "put _error string and _raw binary into the schema"),
        ("primitivesAsString", "from_json with a schema ignores it; leave it out"),
    ],
)
def test_an_unknown_option_gets_the_nearest_known_one(name: str, said: str) -> None:
    assert said in refused({name: "1"})


@pytest.mark.parametrize(
    "key",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_refused_client_keys_say_why(key: str) -> None:
    assert f"kafka.{key} cannot be used: " in refused({f"kafka.{key}": "x"})


def test_a_poll_of_a_task_has_a_number_of_records() -> None:
    said = refused({"kafka.max.poll.records": "auto"})
    assert "kafka.max.poll.records: 'auto' is not a whole number" in said
    assert "leave it out" in said
    assert stream(**{"kafka.max.poll.records": "500"}).client["max.poll.records"] == "500"


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is needed"):
        parse({"subscribe": "t"}, streaming=True)


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"]
)
def test_stream_options_in_a_batch_are_ignored_with_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        batch(**{name: "5"})
    assert f"{name} has no effect in a batch query" in caplog.text


def test_client_settings_travel_without_the_group_and_do_not_show() -> None:
    options = stream(**{"kafka.group.id": "g", "kafka.fetch.min.bytes": "7"})
    assert options.client == {"bootstrap.servers": "localhost:9092", "fetch.min.bytes": "7"}
    assert options.group_id == "g"
    assert not options.commit_offsets  # an application may own that group
    assert stream(**{"kafka.group.id": "g", "commitOffsets": "true"}).commit_offsets
    assert "fetch.min" not in repr(options)


def test_every_option_is_explained() -> None:
    assert all(text.endswith(".") for text in OF_SOURCE.values())
