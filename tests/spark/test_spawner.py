"""Processes that are forked in place of a Python. That Spark works with them is what all the Spark tests show."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.spark.processes import environment

from kadence.spark.spawner import PROGRAM, Request, differs, is_launcher, launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")

SEED = {"PYTHONHASHSEED": "0"}
FORKED = "import sys; print('kadence.spark.source.clients' in sys.modules, *sys.argv, sys.stdin.read()); sys.exit(3)"


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    given = launcher(tmp_path_factory.mktemp("cache"))
    seed = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    made = {**os.environ, **seed, **given}
    # Its socket is there soon; before that Python would be started as ever.
    until(lambda: Path(given["KADENCE_SPARK_SPAWNER"], "socket").exists())
    return made


def run(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [variables[PROGRAM], *arguments]
    return subprocess.run(command, env=variables, input="in", capture_output=True, text=True, check=False)


def test_a_process_has_everything_imported_and_its_own_streams_arguments_and_status(
    variables: dict[str, str],
) -> None:
    assert is_launcher(variables[PROGRAM])
    assert not is_launcher(sys.executable)
    done = run(variables, "-c", FORKED, "a", "b c")
    assert (done.returncode, done.stdout, done.stderr) == (3, "True -c a b c in\n", "")
    module = run(variables, "-m", "json.tool", "--nothing")
    assert module.returncode == 2
    assert "unrecognized arguments: --nothing" in module.stderr
    failed = run(variables, "-c", "import os; print(os.environ['MINE']); 1 / 0")
    assert failed.returncode == 1
    assert "KeyError: 'MINE'" in failed.stderr


def test_where_python_itself_would_be_another_it_is_started(variables: dict[str, str]) -> None:
    other = {**variables, "PYTHONHASHSEED": "7"}
    assert run(other, "-c", FORKED).stdout == "False -c in\n"
    none = {**variables, "KADENCE_SPARK_SPAWNER": "/nowhere"}
    assert run(none, "-c", FORKED).stdout == "False -c in\n"


@pytest.mark.parametrize("module", ["pyspark.daemon", "kadence.spark.daemon"])
def test_a_worker_that_spark_hung_up_on_ends_without_a_traceback(
    variables: dict[str, str], module: str
) -> None:
    command = [variables[PROGRAM], "-m", module, "pyspark.sql.worker.lookup_data_sources"]
    with_secret = {**variables, "PYTHON_WORKER_FACTORY_SECRET": "open"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=with_secret, stdin=pipe, stdout=pipe, stderr=pipe) as daemon:
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            (worker,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
            connection.sendall(struct.pack("!i", 4) + b"open")
            assert connection.recv(6, socket.MSG_WAITALL) == struct.pack("!i", 2) + b"ok"
        until(lambda: not Path(f"/proc/{worker}").exists())
        _, said = daemon.communicate()
    assert said == b""


def test_the_daemon_of_tasks_starts_in_silence() -> None:
    """It is a program of a package: Python warns where importing the package has imported it, too."""
    program = "import kadence.spark.spawner, sys; sys.exit('kadence.spark.daemon' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@contextmanager
def waiting(variables: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that waits, by what stands for it and by its own id."""
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    command = [variables[PROGRAM], "-c", program]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as stand_in:
        assert stand_in.stdout is not None
        yield stand_in, int(stand_in.stdout.readline())


def test_a_signal_reaches_the_process_and_neither_outlives_the_other(variables: dict[str, str]) -> None:
    with waiting(variables) as (stand_in, process):
        assert process != stand_in.pid
        stand_in.terminate()
        assert stand_in.wait(PATIENCE) == -signal.SIGTERM
    with waiting(variables) as (stand_in, process):
        os.kill(process, signal.SIGKILL)
        assert stand_in.wait(PATIENCE) == -signal.SIGKILL
    with waiting(variables) as (stand_in, process):
        stand_in.kill()
        until(lambda: not Path(f"/proc/{process}").exists())


def test_it_ends_with_the_program_that_started_it() -> None:
    program = "from kadence.spark.spawner import launcher; print(launcher()['KADENCE_SPARK_SPAWNER'])"
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert said.stderr == ""
    until(lambda: not Path(said.stdout.strip()).exists())


def test_what_makes_another_python() -> None:
    asked = Request(["-m", "pyspark.daemon"], {**SEED, "PYTHON_WORKER_FACTORY_SECRET": "s"}, "/here")
    here = str(Path(__file__).parent)

    def with_variables(**more: str) -> Request:
        return replace(asked, environment={**asked.environment, **more})

    same = [
        asked,
        with_variables(PYTHONUNBUFFERED="YES", LANG="C", OMP_NUM_THREADS="1"),
        with_variables(PYTHONPATH="/not/there.zip:"),
    ]
    assert not any(differs(request, SEED, "/here") for request in same)
    others = [
        replace(asked, directory="/there"),
        replace(asked, arguments=["program.py"]),
        replace(asked, arguments=[]),
        with_variables(PYTHONHASHSEED="1"),
        with_variables(PYTHONOPTIMIZE="1"),
        with_variables(PYTHONPATH=here),
        with_variables(OMP_NUM_THREADS="4"),
    ]
    assert all(differs(request, SEED, "/here") for request in others)
    for path in (here, f"{here}:{here}"):
        assert not differs(with_variables(PYTHONPATH=path), {**SEED, "PYTHONPATH": here}, "/here")
