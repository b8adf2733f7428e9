"""The blocks of README's and docs/'s pages, and how a test runs them.

A page's Python blocks are one session, run in order in a process of its own. A ``text`` block right after a
block is what that block must print. ``sh`` blocks run in a shell with ``kadence`` on PATH and free ports in
place of 9092 and 8081; of ``make`` only the target is checked, because making it is what CI does around these tests.
README's ``localhost:9092`` is an embedded broker here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kadence_testing.kafka import free_ports

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "packages").glob("*/README.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "<<<< end of block"
PATIENCE = 280.0  # a Spark session on a busy machine


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    printed: str | None


def blocks(page: Path, language: str) -> list[Block]:
    found = [match.groups() for match in BLOCK.finditer(page.read_text())]
    following = [*found, ("", "")][1:]
    return [
        Block(kind, text, after if next_kind == "text" else None)
        for (kind, text), (next_kind, after) in zip(found, following, strict=True)
        if kind == language
    ]


def pages_with(language: str, *, spark: bool) -> list[Path]:
    """The pages that have such blocks, and start Spark in their blocks, or do not."""
    return [page for page in PAGES if blocks(page, language) and uses_spark(page) == spark]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def uses_spark(page: Path) -> bool:
    """Whether its blocks start Spark: those pages are tested one after the other, by a process of the run's own."""
    told = "".join(block.text for language in ("python", "sh") for block in blocks(page, language))
    return "spark" in told.lower()


def check_snippets(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Run a page's Python blocks as one session, and compare what they print."""
    session = blocks(page, "python")
    if any("kadence_testing.kafka" in block.text for block in session):
        request.getfixturevalue("kafka")  # skips, or fails on CI, where real Kafka cannot be had
    script = tmp_path / "session.py"
    text = "".join(f"{block.text}\nprint({MARK!r})\n" for block in session)
    if page.name == "README.md":
        text = text.replace("localhost:9092", request.getfixturevalue("readers_broker"))
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{MARK}\n")
    for block, output in zip(session, printed, strict=False):
        if block.printed is not None:
            assert output == block.printed


def check_commands(page: Path, tmp_path: Path) -> None:
    """Run a page's commands in a shell."""
    lines = "".join(block.text for block in blocks(page, "sh")).splitlines()
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
    script = "\n".join(line for line in lines if not line.startswith("make "))
    port, registry_port = map(str, free_ports(2))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KADENCE_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
    }
    # The shell's own children (a broker in the background) end with it.
    whole = f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}\n"
    # In one pass: the port that is free may be 28081.
    ports = {"9092": port, "8081": registry_port}
    whole = re.sub("|".join(ports), lambda found: ports[found[0]], whole)
    done = subprocess.run(
        ["bash", "-c", whole],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
