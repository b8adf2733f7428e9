"""Advice in errors about pipeline files and their tables: what is written by it is accepted. Without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spark.advice.rows import Row, follow

from kadence.environment import Environment
from kadence.errors import ConfigError
from kadence_spark.pipeline import run
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.directory import Shape
from kadence_spark.pipeline.reading import parse as pipeline_of

PIPELINE = """\
name = "numbers"
checkpoint = "checkpoint"
[source]
servers = "broker:9092"
topics = ["numbers"]
[decode]
format = "json"
schema = "id bigint, at timestamp"
[sink]
path = "table"
"""
AGGREGATE = PIPELINE.replace(
    "[sink]\n", '[aggregate]\nsql = "SELECT at, count(*) AS n FROM rows GROUP BY at"\n[sink]\n'
)


def with_keys(keys: str, of: str = AGGREGATE) -> str:
    return of.replace("[aggregate]\n", f"[aggregate]\n{keys}\n")


def read(text: str, **variables: str) -> object:
    return checked(pipeline_of(text, "numbers.toml", variables), Environment(variables))


PIPELINES = {
    "JSON without columns": Row(
        read,
        PIPELINE.replace('schema = "id bigint, at timestamp"\n', ""),
        "schema is missing: the columns of the JSON as Spark DDL, such as 'id bigint, name string'",
        (PIPELINE.replace("id bigint, at timestamp", "id bigint, name string"),),
    ),
    "a delay without a watermark": Row(
        read,
        with_keys('delay = "10m"\nmode = "append"'),
        'name its column, such as watermark = "at"',
        (with_keys('delay = "10m"\nwatermark = "at"\nmode = "append"'),),
    ),
    "a watermark without a delay": Row(
        read,
        with_keys('watermark = "at"\nmode = "append"'),
        'needs a delay, such as delay = "10m"',
        (with_keys('delay = "10m"\nwatermark = "at"\nmode = "append"'),),
    ),
    "groups that may change": Row(
        read,
        with_keys('mode = "append"'),
        'such as watermark = "at", and a delay',
        (with_keys('delay = "10m"\nwatermark = "at"\nmode = "append"'),),
    ),
    "a variable that is not set": Row(
        read,
        PIPELINE.replace("broker:9092", "${SERVERS}"),
        "set it, or give a default as in ${SERVERS:-text}",
        (PIPELINE.replace("broker:9092", "${SERVERS:-b:9092}"),),
    ),
    "the connector's format": Row(
        read,
        PIPELINE.replace('path = "table"', 'topic = "sums"\nformat = "kafka"'),
        "a topic is written by format kadence; leave the format out",
        (PIPELINE.replace('path = "table"', 'topic = "sums"'),),
    ),
    "a value in place of a table": Row(
        read,
        PIPELINE.replace('[sink]\npath = "table"\n', "").replace("[source]", "sink = 5\n[source]"),
        "write [sink] with keys below it",
        (PIPELINE,),
    ),
    "a table in place of a list": Row(
        read,
        PIPELINE + '[expect]\nname = "a"\ncondition = "id > 0"\n',
        "write [[expect]] before each",
        (PIPELINE + '[[expect]]\nname = "a"\ncondition = "id > 0"\naction = "warn"\n',),
    ),
}


@pytest.mark.parametrize("row", PIPELINES.values(), ids=PIPELINES)
def test_a_pipeline_that_follows_the_advice_is_accepted(row: Row) -> None:
    follow(row, ConfigError)


def test_a_variable_that_is_set() -> None:
    assert read(PIPELINE.replace("broker:9092", "${SERVERS}"), SERVERS="b:9092")


def shape(**changed: Any) -> Shape:
    """What batches of a table are like."""
    given = {"form": "csv", "partition_by": (), "columns": (("id", "int"),), "options": ()}
    return Shape(since=0, **{**given, **changed})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (shape(), shape(form="json")),
        (shape(), shape(partition_by=("id",))),
        (shape(), shape(columns=(("id", "int"), ("name", "string")))),
        (shape(), shape(options=(("sep", ";"),))),
    ],
    ids=["format", "partitions", "columns", "option"],
)
def test_a_table_that_is_written_otherwise(before: Shape, now: Shape) -> None:
    """A table of a new checkpoint has no batches yet, and so nothing to differ from."""
    told = before.objection(now, "table")
    assert told is not None
    assert told.endswith("put it back, or begin a new table with a checkpoint of its own")
    assert before.objection(before, "table") is None


def test_a_table_whose_column_has_another_type() -> None:
    before = shape(form="parquet")
    told = before.objection(shape(form="parquet", columns=(("id", "bigint"),)), "table")
    assert told is not None
    assert "column id is bigint now, and int in the table table: cast it in a transform" in told
    assert (
        before.objection(shape(form="parquet", columns=(("id", "int"), ("more", "string"))), "table") is None
    )


def test_a_pipeline_without_a_server_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(run, "session_apart", lambda name, **_: opened.append(name))
    pipeline = checked(pipeline_of(PIPELINE, "numbers.toml", {}), Environment({}))
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(ConfigError, match="unset the variable SPARK_REMOTE"):
        run.open_session(pipeline, Environment({}))
    monkeypatch.delenv("SPARK_REMOTE")
    run.open_session(pipeline, Environment({}))
    assert opened == ["numbers"]
