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
from kadence.spark.pipeline.files import LocalFiles
from kadence.spark.pipeline.model import DecodeStep, Output, Pipeline, SourceStep
from kadence.spark.pipeline.outputs import writer
from kadence.spark.pipeline.places import check_clusters
from kadence.spark.source.options import parse


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
