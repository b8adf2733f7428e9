"""A pipeline into Delta: what a crash has written twice is there once. Delta's jar comes from Maven Central."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyspark
import pytest
from tests.spark.conftest import Cluster
from tests.spark.pipeline.test_kill import SPARK
from tests.spark.processes import run_job

from kadence import Producer
from kadence.errors import MissingDependencyError
from kadence_testing.maven import maven_jars

pytestmark = pytest.mark.own_spark

VERSION = "4.4.0"

FILE = """\
checkpoint = "{directory}/checkpoint"
[source]
servers = "{servers}"
topics = ["{topic}"]
startingOffsets = "earliest"
maxOffsetsPerTrigger = 4
[decode]
format = "string"
[[expect]]
name = "short"
condition = "length(value) < 2"
action = "drop"
[sink]
format = "delta"
path = "{directory}/table"
[dead_letters]
format = "delta"
path = "{directory}/letters"
{spark}
jars = "{jars}"
sql.extensions = "io.delta.sql.DeltaSparkSessionExtension"
sql.catalog.spark_catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
"""


@pytest.fixture(scope="module")
def jars() -> str:
    """Those of Delta alone: Spark has what they need."""
    # Of Delta's releases none is for Spark 4.3: the one for 4.2 fails on it with the second batch (NoSuchMethodError).
    if not pyspark.__version__.startswith("4.2."):
        pytest.skip("Delta has a release for Spark 4.2: make test-spark")
    names = ("delta-spark_4.2_2.13", "delta-storage", "delta-kernel-api", "delta-kernel-defaults")
    try:
        found = maven_jars(f"delta-{VERSION}", [f"io.delta:{name}:{VERSION}" for name in names], ["*:*"])
    except MissingDependencyError as problem:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(problem))
    return ",".join(str(each) for each in sorted(found.glob("*.jar")))


def test_a_batch_done_again_is_in_the_table_once(cluster: Cluster, jars: str, tmp_path: Path) -> None:
    cluster.create(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"a", b"b", b"cc", b"d", b"e", b"ff"):
            producer.send(cluster.topic, value)
    file = tmp_path / "delta.toml"
    file.write_text(
        FILE.format(
            directory=tmp_path, servers=cluster.bootstrap_servers, topic=cluster.topic, spark=SPARK, jars=jars
        )
    )
    ran = run_job("delta.py", str(file), str(tmp_path / "checkpoint"))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["batches"] == [1, 1]
    assert sorted(said["rows"]["sink"]) == ["a", "b", "d", "e"]
    assert sorted(said["rows"]["letters"]) == ["cc", "ff"]
