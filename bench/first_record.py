"""The time from nothing to the first printed record: clone, environment, install without Spark, a README's snippet.

    python bench/first_record.py [--broker kafka] [--wheel FILE] [--cached]

The clone is of this checkout's last commit; with ``--wheel`` pip installs this file instead, as it installs a
release. With ``--broker kafka`` the snippet is the README's first one, and reads from a real Apache Kafka that is
running and has ten records, as a user's own has; its start is printed and does not count. Otherwise it is the snippet
that brings its own broker. Without ``--cached`` pip downloads what it needs, as on a new machine, so the network has
its share. Beside the time taken stands what processors worked: on a busy machine that says more.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
NEEDED = ("kadence", "kadence-schemas", "kadence-broker", "kadence-cli")
"""What the README's snippets take."""
ADDRESS = "localhost:9092"
"""Of the broker in the README's first snippet."""


def worked() -> float:
    """Seconds of processors that children have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(text: str, command: list[str | Path], **environment: str) -> float:
    """Run it, say how long it took and how long processors worked for it, and return the first."""
    started, before = time.monotonic(), worked()
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    took = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(map(str, command))}")
    print(f"{took:6.1f} s {worked() - before:6.1f} s  {text}", flush=True)
    return took


def first_snippet(servers: str) -> str:
    """The README's first snippet for these brokers."""
    found = re.search(r"^```python\n(.*?)^```", (HERE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    if found is None or ADDRESS not in found[1]:
        raise SystemExit(f"the README's first snippet does not read from {ADDRESS}")
    return found[1].replace(ADDRESS, servers)


def first_line(text: str, command: list[str | Path], **environment: str) -> float:
    """Run it until it prints a line, say how long that took and what it was, and return the time."""
    started = time.monotonic()
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().rstrip()
        took = time.monotonic() - started
        process.stdout.read()
    if not line or process.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, command[:2]))}")
    print(f"{took:6.1f} s           {text}: {line}", flush=True)
    return took


def kafka(stack: ExitStack) -> str:
    """A real Kafka that runs; its address."""
    sys.path[:0] = map(str, sorted(HERE.glob("packages/*/src")))
    from kadence_testing.kafka import Kafka

    started = time.monotonic()
    servers = stack.enter_context(Kafka()).bootstrap_servers
    print(f"{time.monotonic() - started:6.1f} s           Apache Kafka starts; it does not count", flush=True)
    return servers


def write(python: Path, servers: str, **environment: str) -> None:
    """Ten records for the snippet, which no user waits for."""
    produce: list[str | Path] = [
        python,
        "-m",
        "kadence",
        "produce",
        "orders",
        "--format",
        "lines",
        "-b",
        servers,
    ]
    lines = "".join(f"order {number}\n" for number in range(10))
    subprocess.run(
        produce, env=os.environ | environment, input=lines, text=True, stderr=subprocess.PIPE, check=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="install this, not the clone")
    parser.add_argument("--cached", action="store_true", help="let pip use its cache")
    asked = parser.parse_args()
    alone = {"PYTHONPATH": ""}
    print("   taken   worked")
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="kadence-first-record-"))
        clone = Path(temporary) / "kadence"
        python = clone / ".venv" / "bin" / "python"
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        cache = [] if asked.cached else ["--no-cache-dir"]
        if asked.broker == "kafka":
            servers = kafka(stack)
        before = worked()
        total = timed("git clone", ["git", "clone", "--quiet", "--depth=1", f"file://{HERE}", clone])
        total += timed("python -m venv", [sys.executable, "-m", "venv", clone / ".venv"])
        what, where = "pip install packages/kadence ...", [clone / "packages" / name for name in NEEDED]
        if asked.wheel is not None:
            what, where = (
                f"pip install {asked.wheel.name} ...",
                [asked.wheel.resolve(), *(clone / "packages" / name for name in NEEDED[1:])],
            )
        total += timed(what, [*pip, *cache, *where], **alone)
        if asked.broker == "kafka":
            write(python, servers, **alone)
            total += first_line("README's first record", [python, "-c", first_snippet(servers)], **alone)
        else:
            total += timed("the README's snippet", [python, clone / "tools" / "try_wheel.py"], **alone)
    print(
        f"{total:6.1f} s {worked() - before:6.1f} s  from nothing to the first record, with {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    main()
