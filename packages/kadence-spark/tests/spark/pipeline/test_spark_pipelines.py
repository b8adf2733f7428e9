"""A pipeline's file as a table inside a project of Spark's own `spark-pipelines`, as docs/pipelines.md tells it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.patience import PATIENCE
from tests.spark.conftest import Cluster
from tests.spark.pipeline.conftest import TABLES, File
from tests.spark.processes import SPARK, environment, service

from kadence.java import find_java
from kadence_spark.session import SETTINGS

pytestmark = pytest.mark.own_spark

PROJECT = """\
name: numbers_project
storage: {storage}
libraries:
  - glob:
      include: definitions/**
configuration:
  pipelines.incompatibleViewCheck.enabled: "false"
  spark.sql.shuffle.partitions: "1"
"""


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="spark-pipelines needs PyYAML")
def test_a_project_of_spark_pipelines(cluster: Cluster, file: File, tmp_path: Path) -> None:
    cluster.create(1)
    file.produce(range(10))
    file.send(b"{broken", b'{"id":5000,"part":"x"}')
    # The plans are on the server: declare() puts the record's column into the text.
    plain = "SELECT id, part, id / 2 AS half FROM records"
    assert plain in TABLES
    inner = "WITH r AS (SELECT id, part FROM records) SELECT id, part, id / 2 AS half FROM r"
    file.write(tables=TABLES.replace(plain, inner))
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT.format(storage=f"file://{tmp_path}/storage"))
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    (definitions / "numbers.py").write_text(
        f'from kadence_spark.pipeline.declare import declare\n\ndeclare("{file.path}")\n'
    )
    # A server of the test's own: the one that spark-pipelines starts has a fixed port.
    settings = {
        **SETTINGS,
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [str(SPARK / "bin" / "spark-submit")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with service([*command, "spark-internal"], tmp_path / "server.log") as server:
        port = server.says(r"Spark Connect server started at: \S+?:(\d+)")
        ran = subprocess.run(
            [
                str(SPARK / "bin" / "spark-pipelines"),
                *(
                    "--remote",
                    f"sc://127.0.0.1:{port}",
                    "run",
                    "--spec",
                    str(tmp_path / "spark-pipeline.yml"),
                ),
            ],
            env=environment(JAVA_HOME=str(find_java().home), PYSPARK_PYTHON=sys.executable),
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = ds.dataset(tmp_path / "warehouse" / "numbers", partitioning="hive").to_table(columns=["id"])
    assert sorted(found.column("id").to_pylist()) == list(range(10))
    letters = ds.dataset(tmp_path / "warehouse" / "numbers_dead_letters").to_table(columns=["reason"])
    assert sorted(each.partition(" ")[0] for each in letters.column("reason").to_pylist()) == [
        "decode:",
        "expectation",
    ]
