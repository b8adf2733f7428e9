"""Each run of each client has a process of its own, so that none inherits another's memory, threads or caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from harness.plan import Line, Outcome, Plan

CHILD = Path(__file__).resolve().parent.parent / "child.py"


def start(row: str, name: str, line: Line, plan: Plan) -> subprocess.Popen[str]:
    command = [line.python or sys.executable, str(CHILD), row, name, json.dumps(asdict(plan))]
    environment = {**os.environ, **line.environment}
    # What is installed is compiled already: where that is forbidden, a checkout would be compiled at each import.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(child: subprocess.Popen[str], timeout: float) -> Outcome:
    """What the child measured; when it failed, its last line says why."""
    try:
        output, errors = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return f"not done after {timeout:g} s"
    if child.returncode:
        lines = errors.strip().splitlines() or [f"ended with {child.returncode}"]
        return lines[-1]
    return {name: float(figure) for name, figure in json.loads(output.splitlines()[-1]).items()}


def run(row: str, name: str, line: Line, plan: Plan, timeout: float = 90.0) -> Outcome:
    return finish(start(row, name, line, plan), timeout)


@contextmanager
def beside(row: str, name: str, line: Line, plan: Plan) -> Iterator[None]:
    """A child that does its work for as long as the block lasts."""
    child = start(row, name, line, plan)
    try:
        yield
        if child.poll() is not None:
            raise SystemExit(f"{line.title} ended early: {finish(child, 1.0)}")
    finally:
        child.kill()
        child.communicate()
