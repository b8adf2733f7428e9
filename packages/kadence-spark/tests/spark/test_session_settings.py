"""All that `session()` sets, beside a plain session of Spark: nothing of it changes what a user's own code gets.

Whatever comes to these lists is a decision: does a function, a table or a source of a user see it?
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.spark.processes import run_job

from kadence.java import find_java
from kadence_spark.session import _surroundings

pytestmark = pytest.mark.own_spark

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}

ADDED = {
    # A new query may begin in a checkpoint in which an application has died before its first batch.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # How checkpoints are written on a local disk: without files of checksums.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # The sockets between Java and its Python processes.
    "spark.python.unix.domain.socket.enabled": "true",
}

OF_ONE_START = {
    "spark.app.id",
    "spark.python.unix.domain.socket.dir",
    "spark.app.startTime",
    "spark.app.submitTime",
    "spark.driver.port",
    "spark.sql.warehouse.dir",
}
"""Settings that differ between any two sessions."""

Told = dict[str, Any]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Told]:
    """What a plain session and one of Kadence's tell, each in a process of its own, at the same time."""

    def run(kind: str) -> Told:
        place = tmp_path_factory.mktemp(kind)
        done = run_job(
            "beside_plain.py",
            kind,
            json.dumps(SETTINGS),
            steps=6,
            JAVA_HOME=str(find_java().home),
            TMPDIR=str(place),
            JAVA_TOOL_OPTIONS=f"-Djava.io.tmpdir={place}",
            PYTHONHASHSEED="0",
        )
        assert done.returncode == 0, done.stderr
        told: Told = json.loads(done.stdout)
        return told

    with ThreadPoolExecutor() as threads:
        plain, ours = threads.map(run, ("plain", "session"))
    return plain, ours


def added(plain: dict[str, str], ours: dict[str, str]) -> dict[str, str]:
    """What is in one and not so in the other, which lacks nothing of it."""
    assert set(plain) - set(ours) == set()
    return {name: value for name, value in ours.items() if plain.get(name) != value}


@pytest.mark.skipif(
    os.name != "posix", reason="elsewhere there are no sockets of Unix, and other file systems"
)
def test_the_settings_of_spark(sessions: tuple[Told, Told]) -> None:
    plain, ours = sessions
    more = added(plain["settings"], ours["settings"])
    assert {name: more[name] for name in sorted(set(more) - OF_ONE_START)} == dict(sorted(ADDED.items()))
    more = added(plain["of the session"], ours["of the session"])
    # Its own default, said aloud: tasks are told of settings alone.
    zone = {"spark.sql.session.timeZone": ours["of the session"]["spark.sql.session.timeZone"]}
    assert {name: more[name] for name in set(more) - OF_ONE_START} == {**ADDED, **zone}
    assert zone["spark.sql.session.timeZone"] == plain["properties"]["user.timezone"]


def test_the_environment(sessions: tuple[Told, Told]) -> None:
    plain, ours = sessions
    more = added(plain["environment"], ours["environment"])
    of_one_start = {"TMPDIR", "JAVA_TOOL_OPTIONS", "_PYSPARK_DRIVER_CONN_INFO_PATH"}
    assert {name: more[name] for name in set(more) - of_one_start} == {
        "KADENCE_SPARK_PARALLELISM": "2",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    # The other session was given them.
    assert set(_surroundings("local[2]")) == {"JAVA_HOME", "PYSPARK_DRIVER_PYTHON"}
    assert ours["environment"]["PYSPARK_PYTHON"] == sys.executable


def test_the_properties_of_java(sessions: tuple[Told, Told]) -> None:
    plain, ours = sessions
    more = set(added(plain["properties"], ours["properties"]))
    assert {name for name in more if not name.startswith("spark.")} <= {"java.io.tmpdir", "sun.java.command"}
    assert {name for name in more if name.startswith("spark.")} - OF_ONE_START == set(ADDED)


def test_the_workers(sessions: tuple[Told, Told]) -> None:
    plain, ours = (each["worker"] for each in sessions)
    assert ours["python"] == plain["python"] == sys.executable
    # A function of a user's starts with what Spark has imported, and with nothing of ours.
    assert ours["modules"] == plain["modules"]
    theirs, own = set(plain["environment"]), set(ours["environment"])
    assert theirs - own == {"PYTHON_WORKER_FACTORY_SECRET"}  # over TCP
    assert own - theirs == {
        "KADENCE_SPARK_PARALLELISM",
        "PYSPARK_DRIVER_PYTHON",
        "PYTHON_UNIX_DOMAIN_ENABLED",
        "PYTHON_WORKER_FACTORY_SOCK_DIR",
    }


def test_no_two_workers_draw_the_same_random_numbers(sessions: tuple[Told, Told]) -> None:
    for told in sessions:
        assert (told["numpy"], told["random"]) == (8, 8)


def test_a_null_of_a_users_function_is_a_null_or_an_error_as_in_a_plain_session(
    sessions: tuple[Told, Told],
) -> None:
    plain, ours = sessions
    assert "Value at index is null" in ours["null where there is none"]
    assert ours["null where there may be one"] == [100, None, 102, None]
    assert ours["pandas"] == [0, None, 1, None]
    for case in ("null where there may be one", "pandas"):
        assert ours[case] == plain[case]
    assert "Value at index is null" in plain["null where there is none"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere there are no sockets of Unix")
def test_no_other_user_of_the_machine_is_given_anything(sessions: tuple[Told, Told]) -> None:
    """Spark's own sockets lie where nobody else may enter, and nothing of ours lies or listens where others come.

    Which variables name places: see `test_the_environment`.
    """
    _, ours = sessions
    place = ours["settings"]["spark.python.unix.domain.socket.dir"]
    assert ours["ours"] == {place: 0o700}
    assert ours["sockets"]
    assert {str(Path(each).parent) for each in ours["sockets"]} == {place}
    assert not Path(place).exists(), "it goes with its process"
