"""The tests of the core on other versions of Python, with the wheels that a release has for them.

    make test-pythons
    make test-pythons PYTHONS="3.14 /opt/free-threaded/bin/python3" ARGS="-x packages/kadence/tests/records"

PYTHONS names versions (3.14t is the free-threaded build of 3.14, 3.14-musl that for Alpine's C library) and
interpreters; without it `VERSIONS` are tried. A version is looked for on PATH, among pyenv's, and among those that
`make pythons` made. Each Python gets an environment of its own below build/pythons (tools/wheel_environments.py). What
has no wheel for a Python is left out there, and the tests that import it are skipped.

The table at the end says what passed. The exit status is 1 if a test failed, an environment could not be made, or
no Python was found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from layout import INTERPRETERS, ROOT
from wheel_environments import lacks, make

_BUILD: Final = ROOT / "build" / "pythons"

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.11-musl", "3.14-musl")
"""What is tried where PYTHONS says nothing."""

ROOMS: Final = (
    *(
        f"packages/kadence/tests/{room}"
        for room in (
            "wire",
            "protocol",
            "records",
            "connection",
            "net",
            "client",
            "consumer",
            "producer",
            "admin",
        )
    ),
    "packages/kadence-broker/tests/coordinator",
    "packages/kadence-broker/tests/broker",
)
"""The folders of tests that are run."""

FREE_THREADED: Final = "packages/kadence/tests/test_free_threaded.py"
"""What is run beside them: threads that meet without the interpreter's lock."""

ASK: Final = """
import sys, sysconfig
threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
# The loader that the program names.
with open(sys.executable, "rb") as program:
    library = "-musl" if b"/ld-musl-" in program.read(8192) else ""
print("%d.%d" % sys.version_info[:2] + threads + library)
"""
"""What a Python runs to say its version."""

_VERSION: Final = re.compile(r"\d+\.\d+t?(-musl)?")


@dataclass(frozen=True)
class Outcome:
    """A line of the table; None stands for what was not reached."""

    version: str
    said: str = ""
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    seconds: float | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it was to be tested, and is not sound."""
        return bool(self.failed) or (self.passed is None and self.said != NOT_FOUND)


NOT_FOUND: Final = "not found"


# --- which Pythons there are --------------------------------------------------------------------------------------


def version_of(executable: str) -> str | None:
    """The version of an interpreter, 3.14t for a free-threaded one; None where it does not run."""
    try:
        done = subprocess.run([executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def pyenv_root(environment: Mapping[str, str]) -> Path | None:
    """The folder of pyenv, if there is one."""
    if root := environment.get("PYENV_ROOT"):
        return Path(root)
    pyenv = shutil.which("pyenv", path=environment.get("PATH"))
    if pyenv is None:
        return None
    done = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def installed(environment: Mapping[str, str]) -> list[Path]:
    """The folders of the interpreters that pyenv and `make pythons` installed, the newest of each first."""
    pyenv = pyenv_root(environment)
    places = [*([pyenv / "versions"] if pyenv else []), INTERPRETERS]
    return [
        home
        for place in places
        if place.is_dir()
        for home in sorted(place.iterdir(), key=_numbers, reverse=True)
    ]


def _places(version: str, environment: Mapping[str, str], homes: Sequence[Path]) -> Iterator[str]:
    """Where a version may be. A free-threaded one may have either name, and none names its C library."""
    name = f"python{version.removesuffix('-musl')}"
    names = dict.fromkeys((name, name.removesuffix("t")))
    for name in names:
        if found := shutil.which(name, path=environment.get("PATH")):
            yield found
    for folder in homes:
        for name in names:
            if (candidate := folder / "bin" / name).exists():
                yield str(candidate)


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def find(
    asked: Sequence[str],
    environment: Mapping[str, str],
    homes: Sequence[Path],
    version_at: Callable[[str], str | None] = version_of,
) -> dict[str, str | None]:
    """Each version that is asked for, and its interpreter; None where there is none.

    Raises:
        SystemExit: something is neither a version nor an interpreter.
    """
    found: dict[str, str | None] = {}
    for each in asked or VERSIONS:
        if _VERSION.fullmatch(each):
            places = _places(each, environment, homes)
            found[each] = next((place for place in places if version_at(place) == each), None)
        elif version := version_at(each):
            found[version] = each
        else:
            raise SystemExit(f"{each} is neither a version such as 3.14t nor a Python that runs")
    return found


# --- a run --------------------------------------------------------------------------------------------------------


def counted(report: Path) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped, from JUnit's report."""
    passed = failed = skipped = 0
    # pytest has just written it.
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left_out = int(suite.get("skipped", 0))
        passed += int(suite.get("tests", 0)) - bad - left_out
        failed += bad
        skipped += left_out
    return passed, failed, skipped


def _run(version: str, folder: Path, arguments: Sequence[str]) -> Outcome:
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    lacking = lacks(folder)
    environment = {**os.environ, "PYTHONHASHSEED": "0", "KADENCE_TESTS_WITHOUT": " ".join(lacking)}
    if version.endswith("t"):
        # A module of others that needs the lock would switch it on for the whole run.
        environment["PYTHON_GIL"] = "0"
    is_told = any(each.startswith(("tests", "packages")) for each in arguments)
    rooms = [] if is_told else [*ROOMS, FREE_THREADED]
    command = [
        str(folder / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.lacking",
        "-m",
        "not kafka and not heavy",
    ]
    command += ["-n", os.environ.get("WORKERS", "2"), "--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["--junit-xml", str(report), *rooms, *arguments]
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    outcome = Outcome(
        version, f"without {', '.join(lacking)}" if lacking else "", seconds=time.monotonic() - began
    )
    if not report.exists():
        return replace(outcome, said="pytest did not come to its end")
    passed, failed, skipped = counted(report)
    return replace(outcome, passed=passed, failed=failed, skipped=skipped)


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for people."""
    lines = [f"{'Python':<10}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for each in outcomes:
        numbers = (each.passed, each.failed, each.skipped, each.seconds)
        shown = ["-" if number is None else f"{number:.0f}" for number in numbers]
        line = f"{each.version:<10}{shown[0]:>8}{shown[1]:>8}{shown[2]:>9}{shown[3]:>9}  {each.said}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Test with each Python; the arguments are pytest's."""
    outcomes = []
    pythons = find(os.environ.get("PYTHONS", "").split(), os.environ, installed(os.environ))
    for version, executable in pythons.items():
        if executable is None:
            outcomes.append(Outcome(version, NOT_FOUND))
            continue
        print(f"== {version}: {executable}", flush=True)
        try:
            make(version, executable, _BUILD / version)
        # packages.run() ends with the last lines of what failed.
        except (subprocess.CalledProcessError, SystemExit) as error:
            print(error, file=sys.stderr)
            outcomes.append(Outcome(version, f"no environment: {str(error).splitlines()[-1]}"))
            continue
        outcomes.append(_run(version, _BUILD / version, arguments))
    print(table(outcomes))
    return int(any(each.is_bad for each in outcomes) or all(each.said == NOT_FOUND for each in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
