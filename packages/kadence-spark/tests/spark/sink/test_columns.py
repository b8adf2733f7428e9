"""Which columns make a record, and what is said when they do not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kadence.errors import ConfigError, SerializationError
from kadence_spark.sink.columns import HEADERS_TYPE, RecordColumns

EVERYTHING = [
    ("headers", HEADERS_TYPE),
    ("partition", "int"),
    ("offset", "bigint"),
    ("topic", "string"),
    ("key", "string"),
    ("value", "binary"),
]


def test_columns_are_found_by_name_and_the_others_are_not_written() -> None:
    assert RecordColumns.of(EVERYTHING, None).names == ("value", "key", "topic", "partition", "headers")
    assert RecordColumns.of([("value", "string"), ("offset", "bigint")], "t").names == ("value",)


def test_the_option_topic_goes_before_the_column_of_whatever_type() -> None:
    chosen = RecordColumns.of([("value", "string"), ("topic", "int")], "t")
    assert (chosen.names, chosen.topic) == (("value",), "t")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("key", "string")], "needs a column 'value' of type string or binary; there are key"),
        ([("Value", "string")], "needs a column 'value' .* rename 'Value'"),
        (
            [("value", "int")],
            r"column 'value' is int, and must be string or binary; cast it: CAST\(value AS string\)",
        ),
        ([("value", "struct<a:int>")], r"turn it into text with to_json\(value\), or into bytes"),
        ([("value", "string"), ("key", "void")], r"column 'key' is void, .* CAST\(key AS string\)"),
        ([("value", "string"), ("partition", "bigint")], r"column 'partition' is bigint, and must be int"),
        ([("value", "string"), ("headers", "map<string,binary>")], r"CAST\(headers AS array<struct<"),
        ([("value", "string"), ("value", "string")], "there are 2 columns 'value'; keep one of them"),
    ],
)
def test_what_makes_no_record_is_refused_with_a_cure(columns: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecordColumns.of(columns, "t")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "needs the option topic, or a column 'topic' of type string; there are value"),
        ([("Topic", "string")], "rename 'Topic'"),
        ([("topic", "int")], "column 'topic' is int, and must be string"),
    ],
)
def test_without_the_option_there_must_be_a_column_topic(
    columns: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RecordColumns.of([("value", "string"), *columns], None)


def test_text_with_a_collation_is_text() -> None:
    assert RecordColumns.of([("value", "string collate UTF8_LCASE")], "t").names == ("value",)


def test_only_those_columns_go_to_the_producer() -> None:
    rows = pa.record_batch(
        {
            "offset": pa.array([7, 8]),
            "timestamp": pa.array([1, 2], pa.timestamp("us", "UTC")),
            "topic": pa.array(["t", "u"]),
            "key": pa.array(["k", None]),
            "value": pa.array([b"v", None], pa.binary()),
        }
    )
    columns = [("timestamp", "timestamp"), ("value", "binary"), ("key", "string"), ("topic", "string")]
    assert RecordColumns.of(columns, None).records(rows).to_pylist() == [
        {"value": b"v", "key": "k", "topic": "t"},
        {"value": None, "key": None, "topic": "u"},
    ]


def test_a_row_without_topic_is_refused() -> None:
    chosen = RecordColumns.of([("value", "binary"), ("topic", "string")], None)
    rows = pa.record_batch({"value": pa.array([b"v"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(SerializationError, match=r"null in its column topic.*with the option topic"):
        chosen.records(rows)
