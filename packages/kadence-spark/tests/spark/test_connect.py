"""Spark Connect: the client has no Java and no worker, and our package is on the server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import Cluster
from tests.spark.processes import SPARK, run_job, service

from kadence_spark.session import SETTINGS

pytestmark = pytest.mark.own_spark


@pytest.mark.heavy
def test_batch_stream_and_lag_on_a_server(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(2)
    cluster.produce(range(100))
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
        done = run_job(
            "connect.py",
            cluster.bootstrap_servers,
            cluster.topic,
            cluster.group,
            str(tmp_path),
            SPARK_REMOTE=f"sc://127.0.0.1:{port}",
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {
        "session": "pyspark.sql.connect.session",
        "batch": list(range(100)),
        "stream": list(range(100)),
        "lag": {f"{cluster.topic}-0": 0, f"{cluster.topic}-1": 0},
    }
    assert cluster.committed() == cluster.ends()
    assert sys.executable not in done.stderr
