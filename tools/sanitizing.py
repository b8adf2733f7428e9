"""The extension compiled for one of gcc's sanitizers, in a folder of its own, and tests run on that.

`check_threads` and `check_memory` say for which, and on what tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from layout import CLIENT, ROOT

__all__ = ["ROOT", "Sanitizer", "given", "run", "say"]

_REPORT: Final = "report"


class Sanitizer(NamedTuple):
    """How to compile for it, and how to load what was compiled.

    Attributes:
        name: in texts. folder: for all that is built. flags: of the compiler. library: of gcc, loaded before all
            others.
        options: for each variable of the environment what it is to say, without where the reports go.
    """

    name: str
    folder: Path
    flags: str
    library: str
    options: Mapping[str, Mapping[str, object]]

    def build(self) -> Path:
        """Compile the package's extensions; where that package is."""
        say(f"compiling the extension for {self.name}")
        source = self.folder / "src"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(
            CLIENT / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
        )
        subprocess.run(
            [
                sys.executable,
                "setup.py",
                "-q",
                "build_ext",
                "--build-lib",
                source,
                "--build-temp",
                self.folder / "made",
            ],
            cwd=CLIENT,
            env={**os.environ, "CFLAGS": self.flags},
            check=True,
        )
        return source

    def test(self, words: Sequence[str], source: Path, *, before: Sequence[str] = ()) -> int:
        """Run pytest with these words on what was built, and show the reports.

        Args:
            before: words of the command before Python.

        Returns:
            what this program is to return: 1 if there is a report, or the exit status of the tests.
        """
        say("the tests on it")
        for old in self._reports():
            old.unlink()
        library = run(["gcc", f"-print-file-name={self.library}"]).stdout.strip()
        options = {
            variable: " ".join(
                f"{name}={value}" for name, value in {**told, "log_path": self.folder / _REPORT}.items()
            )
            for variable, told in self.options.items()
        }
        environment = {**os.environ, "PYTHONPATH": str(source), "LD_PRELOAD": library, **options}
        python = [*before, sys.executable]
        where = "import kadence._native.drain as it; print(it.__file__)"
        loaded = subprocess.run(
            [*python, "-c", where], env=environment, capture_output=True, text=True, check=False
        )
        if not loaded.stdout.startswith(str(source)):
            raise SystemExit(
                f"the tests would not load what was compiled for them: {loaded.stdout}{loaded.stderr}"
            )
        tested = subprocess.run(
            [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
            cwd=ROOT,
            env=environment,
            check=False,
        )
        reports = self._reports()
        for report in reports:
            print(report.read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
        say(
            f"{len(reports)} processes with reports of {self.name}"
            if reports
            else f"no report of {self.name}"
        )
        return 1 if reports else tested.returncode

    def _reports(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_REPORT}.*"))


def given(words: Sequence[str]) -> bool:
    """Whether the caller names tests of their own."""
    return any(not word.startswith("-") and Path(ROOT, word.split("::")[0]).exists() for word in words)


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run it, whatever its exit status."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def say(text: str) -> None:
    print(f"== {text}", flush=True)
