"""A standalone cluster on this machine: two workers, one of which dies in the middle of a stream's batch."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.patience import until
from tests.spark.conftest import Cluster
from tests.spark.processes import SPARK, run_job, service

QUICK = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def worker(directory: Path, name: str, master: str) -> list[str]:
    options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "600m", "--webui-port", "0"]
    where = ["--work-dir", str(directory / name)]
    return [
        str(SPARK / "bin" / "spark-class"),
        "org.apache.spark.deploy.worker.Worker",
        *options,
        *where,
        master,
    ]


def test_each_row_once_although_a_worker_dies_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(2)
    cluster.produce(range(600))
    command = [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
    command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with service(command, tmp_path / "master.log", **QUICK) as master, ThreadPoolExecutor() as threads:
        address = master.says(r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)")
        with (
            service(worker(tmp_path, "one", address), tmp_path / "one.log", **QUICK) as one,
            service(worker(tmp_path, "two", address), tmp_path / "two.log", **QUICK) as two,
        ):
            job = threads.submit(
                run_job, "cluster.py", address, cluster.bootstrap_servers, cluster.topic, str(tmp_path)
            )

            def under_way() -> int:
                assert not job.done(), job.result().stderr
                return len(list(tmp_path.glob("task-*")))

            # Each step has a time of its own: a driver, two executors, their first workers.
            master.says(r"Registered app (\S+)")
            one.says(r"Asked to launch executor (\S+)")
            two.says(r"Asked to launch executor (\S+)")
            # Both have a task that has read a row.
            until(lambda: under_way() == 2, what=master.log.read_text)
            one.kill()
            (tmp_path / "go").touch()
            done = job.result()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(range(600))
    assert list(tmp_path.glob("task-*-1")), "no task was run again"
