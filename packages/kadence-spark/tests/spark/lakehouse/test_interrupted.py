"""Ctrl-C within a commit: to the program and all that Spark started, as a terminal sends it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.patience import PATIENCE, until
from tests.spark.conftest import Cluster
from tests.spark.lakehouse.conftest import Lake
from tests.spark.processes import JOBS, environment


@contextmanager
def started(cluster: Cluster, lake: Lake, where: str) -> Iterator[subprocess.Popen[str]]:
    """The job, held there."""
    arguments = [cluster.bootstrap_servers, cluster.topic, str(lake.directory), lake.kind, where]
    program = subprocess.Popen(
        [sys.executable, str(JOBS / "interrupted_commit.py"), *arguments, json.dumps(lake.options)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        try:
            assert said(program) == "started\n", program.communicate(timeout=PATIENCE)[1]
            yield program
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


def said(program: subprocess.Popen[str]) -> str:
    """Its next line; empty where it has ended without one. Spark's start is several things that may take a while."""
    assert program.stdout is not None
    assert select.select([program.stdout], [], [], 3 * PATIENCE)[0], "not a word of the job"
    return program.stdout.readline()


@pytest.mark.heavy
def test_ctrl_c_within_a_commit_leaves_no_half_of_it_and_the_batch_is_there_once(
    cluster: Cluster, lake: Lake
) -> None:
    cluster.create(1)
    hold, held = lake.directory / "hold", lake.directory / "held"
    for done, where in enumerate(("before", "after")):
        cluster.produce(range(10 * done, 10 * done + 10))
        hold.touch()
        with started(cluster, lake, where) as program:
            until(held.exists, what="a commit")
            os.killpg(program.pid, signal.SIGINT)
            word = said(program)
            # Whether Spark ends the commit or waits for it is Spark's choice.
            hold.unlink()
            _, errors = program.communicate(timeout=PATIENCE)
        assert (word, program.returncode) == ("interrupted\n", 0), errors
        held.unlink()
    with started(cluster, lake, "nowhere") as program:
        word, errors = program.communicate(timeout=PATIENCE)
    assert (word, program.returncode) == ("done\n", 0), errors
    assert lake.rows("value") == sorted((str(number),) for number in range(20))
