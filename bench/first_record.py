"""The time from nothing to the first record: clone, environment, install without Spark, the README's snippet.

    python bench/first_record.py [--no-compiler] [--cached]

The clone is of this checkout's last commit. Without ``--cached`` pip downloads what it needs, as on a new machine, so
the network has its share. Beside the time taken stands what processors worked: on a busy machine it tells more.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-compiler", action="store_true", help="as where there is none")
    parser.add_argument("--cached", action="store_true", help="let pip use its cache")
    asked = parser.parse_args()
    alone = {"PYTHONPATH": "", "KADENCE_EXTENSION": "auto"}
    if asked.no_compiler:
        alone["CC"] = "/bin/false"
    print("   taken   worked")
    with tempfile.TemporaryDirectory(prefix="kadence-first-record-") as temporary:
        clone = Path(temporary) / "kadence"
        python = clone / ".venv" / "bin" / "python"
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        cache = [] if asked.cached else ["--no-cache-dir"]
        total = timed("git clone", ["git", "clone", "--quiet", "--depth=1", f"file://{HERE}", clone])
        total += timed("python -m venv", [sys.executable, "-m", "venv", clone / ".venv"])
        total += timed("pip install .", [*pip, *cache, clone], **alone)
        total += timed("the README's snippet", [python, clone / "tools" / "try_wheel.py"], **alone)
    print(
        f"{total:6.1f} s {worked():6.1f} s  from nothing to the first record, with {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    main()
