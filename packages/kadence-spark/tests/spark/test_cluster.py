"""Clusters on this machine: tasks that are slow, that fail, a worker that dies; a job that was submitted."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.spark.conftest import Cluster
from tests.spark.processes import JOBS, SPARK, environment, run_job, service

from kadence import Producer
from kadence.java import find_java

pytestmark = pytest.mark.own_spark

QUICK = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false",
    "SPARK_HOME": str(SPARK),
}


def worker(directory: Path, host: str, master: str) -> list[str]:
    options = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
    where = ["--work-dir", str(directory / host)]
    return [
        str(SPARK / "bin" / "spark-class"),
        "org.apache.spark.deploy.worker.Worker",
        *options,
        *where,
        master,
    ]


@pytest.mark.heavy
def test_each_row_once_whatever_becomes_of_tasks_and_workers(cluster: Cluster, tmp_path: Path) -> None:
    """First a task that is slow and gets a second attempt beside it, and one that fails once; then a worker dies."""
    cluster.create(2)
    cluster.produce(range(600))
    cluster.admin.create_topics({f"{cluster.topic}-{name}": 2 for name in ("uneven", "held")})
    command = [str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
    command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with service(command, tmp_path / "master.log", **QUICK) as master, ThreadPoolExecutor() as threads:
        address = master.says(r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)")
        # Spark gives no second attempt to the host of the first, so these are two by their names.
        with (
            service(worker(tmp_path, "127.0.0.1", address), tmp_path / "one.log", **QUICK) as one,
            service(worker(tmp_path, "localhost", address), tmp_path / "two.log", **QUICK) as two,
        ):
            job = threads.submit(
                run_job,
                "cluster.py",
                address,
                cluster.bootstrap_servers,
                cluster.topic,
                str(tmp_path),
                steps=8,
            )

            def has_begun(host: str) -> bool:
                logs = (tmp_path / host).glob("app-*/*/stderr")
                return any("Got assigned task" in log.read_text() for log in logs)

            def until_marked(marks: str, count: int) -> None:
                def is_so() -> bool:
                    assert not job.done(), job.result().stderr
                    return len(list(tmp_path.glob(marks))) >= count

                until(is_so, what=lambda: f"{count} {marks} of {sorted(tmp_path.glob('*-?-?'))}")

            # Each step has a time of its own: a driver, two executors, their first workers.
            master.says(r"Registered app (\S+)")
            one.says(r"Asked to launch executor (\S+)")
            two.says(r"Asked to launch executor (\S+)")
            until(lambda: has_begun("127.0.0.1") and has_begun("localhost"), what=master.log.read_text)
            # A first attempt that has read a row, the second one of the task that failed, that of the slow one; then
            # both executors have a task of the other stream.
            until_marked("uneven-?-0", 1)
            until_marked("uneven-1-1", 1)
            until_marked("uneven-0-1", 1)
            until_marked("held-*", 2)
            one.kill()
            (tmp_path / "go").touch()
            done = job.result()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"uneven": list(range(600)), "held": list(range(600))}
    assert list(tmp_path.glob("held-*-1")), "no task was run again"
    assert cluster.admin.list_transactions(states=["Ongoing"]) == [], (
        "attempts that do not count left something open"
    )


@pytest.mark.heavy
def test_a_submitted_job_with_a_shipped_environment_has_tasks_for_its_executors(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Six tasks run at once there, whatever this machine has. A plain session does not know: one for each partition."""
    cluster.create(8)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(8 * 20_000):
            producer.send(cluster.topic, b"", partition=number % 8)
    # As venv-pack makes it, with less inside; unpacked beside the job too, since Spark plans there with the same path.
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "environment", ".")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--driver-memory", "512m"]
    command += ["--archives", "environment.tar.gz#environment"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    job = [str(JOBS / "submitted.py"), "local-cluster[2,3,1024]", cluster.bootstrap_servers, cluster.topic]
    variables = {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": "./environment/bin/python",
        "SPARK_HOME": str(SPARK),  # where executors work
    }
    done = subprocess.run(
        [*command, *job],
        env=environment(**variables),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"plain": 8, "session": 6, "rows": 8 * 20_000}, done.stderr
