"""Places of a pipeline that meet although their names differ; what a file shows is in test_reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kadence import Broker
from kadence.environment import Environment
from kadence.errors import IllegalStateError
from kadence_spark.pipeline.files import LocalFiles
from kadence_spark.pipeline.model import DecodeStep, Output, Pipeline, SourceStep
from kadence_spark.pipeline.outputs import writer
from kadence_spark.pipeline.places import check_clusters, directory, is_inside, is_same, may_be_same_table
from kadence_spark.source.options import parse


def source(broker: Broker, **topics: str) -> Any:
    return parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **topics}, streaming=True)


@pytest.mark.parametrize(
    "topics", [{"subscribe": "t,u"}, {"subscribePattern": "t.*"}, {"assign": '{"t":[0]}'}], ids=repr
)
def test_one_cluster_under_two_names(topics: dict[str, str]) -> None:
    with Broker() as broker, Broker() as other:
        same = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "writes", "linger.ms": "5"}
        with pytest.raises(IllegalStateError, match="reads the topic 't': it would read what it writes"):
            check_clusters(source(broker, **topics), same, "t")
        check_clusters(source(broker, **topics), {"bootstrap.servers": other.bootstrap_servers}, "t")
        # A topic that it does not read is no reason to ask anybody.
        check_clusters(source(broker, **topics), {"bootstrap.servers": "127.0.0.1:1"}, "v")


def pipeline(sink: Path, dead: Path) -> Pipeline:
    return Pipeline(
        name="p",
        checkpoint="c",
        source=SourceStep(servers="none:9092", topics=("t",)),
        decode=DecodeStep(format="string"),
        sink=Output(path=str(sink)),
        dead_letters=Output(path=str(dead)),
    )


def test_a_directory_knows_which_part_it_is_of(tmp_path: Path) -> None:
    """Where two spellings of one place passed the check all the same, as over a mount."""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "_kadence.json").write_text(json.dumps({"query": "q", "part": "sink"}))
    made = pipeline(tmp_path / "table", tmp_path / "table")
    assert made.dead_letters is not None
    dead = writer(made.dead_letters, made, Environment({}), LocalFiles())
    with pytest.raises(
        IllegalStateError, match="holds the sink of this pipeline, which the dead letters would over"
    ):
        dead.write(Mock(columns=[]), 0, "q")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/t", "s3a://bucket/t/"),
        ("S3N://Bucket/./t", "s3a://bucket/t"),
        ("abfs://c@a.dfs/t", "abfss://c@A.dfs/t"),
        ("hdfs://Node:8020//t", "hdfs://node:8020/t"),
        ("file:/tmp/t", "/tmp/x/../t"),
        ("file:////tmp/t", "//tmp/t"),
        ("file://localhost/tmp/t", "FILE:///tmp/t"),
        ("/tmp/t#1", "file:///tmp/t#1"),
        ("t", "./t/."),
    ],
)
def test_spellings_of_one_directory(one: str, other: str) -> None:
    assert directory(one) == directory(other)
    assert is_same(one, other)
    assert is_inside(f"{one}/below", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://bucket/t#1", "s3a://bucket/t#2"),
        ("s3a://bucket/t?a", "s3a://bucket/t"),
        ("file:///tmp/t#1", "file:///tmp/t#2"),
        ("s3a://bucket/t", "gs://bucket/t"),
        ("s3a://bucket/T", "s3a://bucket/t"),
        ("/tmp/table", "/tmp/tab"),
        ("s3a://bucket/tmp/t", "/tmp/t"),
    ],
)
def test_directories_that_are_not_one(one: str, other: str) -> None:
    assert not is_inside(one, other)
    assert not is_inside(other, one)


def test_a_directory_that_is_mounted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount: another name, no link, and one directory to the file system."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = tmp_path / "one", tmp_path / "other"
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda self, **how: stat(one if self == other else self, **how))
    assert is_same(str(one), str(other))
    # The directories below need not be there yet.
    assert is_inside(f"{other}/a/b", f"{one}/a")
    assert not is_inside(f"{other}/a", f"{one}/b")


def test_names_of_one_table() -> None:
    assert may_be_same_table("spark_catalog.default.`T`", "t")
    assert may_be_same_table("default.t", "spark_catalog.default.t")
    assert not may_be_same_table("shop.t", "t")
