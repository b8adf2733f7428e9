"""Runs commands in this process, with stdin and stdout captured, against an embedded broker."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kadence_broker import Broker
from kadence_cli import main


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def kadence(broker: Broker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """``kadence("topics", "list", stdin=b"")`` runs one command."""
    monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return run


def told(kadence: Run, monkeypatch: pytest.MonkeyPatch, words: str, *command: str) -> Ran:
    """Run a command that cannot reach a broker, with as much time as this machine needs to find that out."""
    for seconds in (0.2, 1.0, 5.0, 25.0):
        monkeypatch.setattr("kadence_cli.reach.REACHED_S", seconds)
        # What goes on because nothing is known yet ends soon, too.
        bound = () if "produce" in command else ("-X", f"default.api.timeout.ms={int(seconds * 1000)}")
        ran = kadence(*command, *bound)
        if words in ran.err + ran.out and "in time" not in ran.err + ran.out:
            break
    return ran
