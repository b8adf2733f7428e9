"""Jobs and Spark's own services as processes of their own, everything bound to this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from tests.patience import PATIENCE, until

from kadence.java import find_java

JOBS = Path(__file__).parent / "jobs"

SPARK = Path(pyspark.__file__).parent


HUNG_UP = re.compile(
    r'^Traceback .*\n(?:  File ".*/pyspark/daemon\.py", .*\n(?:    .*\n)*)*(?:BrokenPipeError: .*\n|\Z)',
    re.MULTILINE,
)
"""What a Python process of Spark's says whose reader has gone: after a limit, and when a query is stopped.

Spark's end kills it in the midst of that, so the last one may be cut off after any line.
"""


def environment(**more: str) -> dict[str, str]:
    """That of a shell in which nobody has activated anything, with the path of this checkout's modules."""
    kept = ("HOME", "TMPDIR", "PYTHONPATH", "XDG_CACHE_HOME", "JAVA_HOME", "LANG", "SPARK_SUBMIT_OPTS")
    plain = {name: os.environ[name] for name in kept if name in os.environ}
    return {**plain, "PATH": "/usr/local/bin:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run_job(name: str, *arguments: str, steps: int = 3, **variables: str) -> subprocess.CompletedProcess[str]:
    """A job of ``jobs/`` from beginning to end; its output, and what it said beside it.

    Args:
        steps: how many things it does of which each may take a while. variables: of its environment.
    """
    return subprocess.run(
        [sys.executable, str(JOBS / name), *arguments],
        env=environment(**{"SPARK_HOME": os.environ["SPARK_HOME"], **variables}),
        capture_output=True,
        text=True,
        timeout=steps * PATIENCE,
        check=False,
    )


class Service:
    """A process of Spark and what it has written."""

    def __init__(self, command: list[str], log: Path, variables: Mapping[str, str]) -> None:
        self.log = log
        java = {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
        with log.open("w") as out:
            self._process = subprocess.Popen(
                command,
                env=environment(**java, **variables),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def says(self, pattern: str) -> str:
        """Wait for words in its log; the first group of them."""
        found: list[str] = []

        def said() -> bool:
            assert self._process.poll() is None, self.log.read_text()
            found[:] = re.findall(pattern, self.log.read_text())
            return bool(found)

        until(said, what=lambda: f"{pattern} in {self.log.read_text()}")
        return found[0]

    def kill(self) -> None:
        """End it and all its children at once, as a machine that loses its power does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


@contextmanager
def service(command: list[str], log: Path, **variables: str) -> Iterator[Service]:
    """Run it meanwhile."""
    running = Service(command, log, variables)
    try:
        yield running
    finally:
        running.kill()


def java_below(process: int) -> int | None:
    """The process id of the Java that a process has started, by its first words in the command line."""
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    for child in map(int, found.stdout.split()):
        try:
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
        except FileNotFoundError:
            continue  # it has ended meanwhile
        if b"spark-submit" in line or b"SparkSubmit" in line:
            return child
    return None
