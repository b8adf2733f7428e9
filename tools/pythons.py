"""The tests of the core on other versions of Python.

    make test-pythons
    make test-pythons PYTHONS="3.14 /opt/free-threaded/bin/python3" ARGS="-x packages/kadence/tests/records"

PYTHONS names versions (3.14t is the free-threaded build of 3.14) and interpreters; without it 3.12, 3.13, 3.14 and
3.14t are tried. A version is looked for on PATH and among pyenv's. Each Python gets an environment of its own below
build/pythons, with the extensions compiled for it. What has no wheel for a Python is left out there, and the tests that
import it are skipped.

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
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from layout import CLIENT, PACKAGES

_ROOT: Final = Path(__file__).parents[1]
_BUILD: Final = _ROOT / "build" / "pythons"

VERSIONS: Final = ("3.12", "3.13", "3.14", "3.14t")
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

OPTIONAL: Final = {
    "confluent-kafka": "confluent_kafka",
    "kafka-python": "kafka",
    "aiokafka": "aiokafka",
    "kio": "kio",
    "lz4": "lz4",
    "python-snappy": "snappy",
    "zstandard": "zstandard",
    "trustme": "trustme",
    "pyarrow": "pyarrow",
    "google-re2": "re2",
    "fastavro": "fastavro",
    "protobuf": "google",
    "jsonschema": "jsonschema",
    "prometheus_client": "prometheus_client",
    "opentelemetry-sdk": "opentelemetry",
    # What trustme stands on.
    "cryptography": "cryptography",
}
"""What some tests of the core import, and what the module is called; a Python that has no wheel goes without.

Their versions are those of pyproject.toml: the tests presume them, and pip would take an older one that has a wheel.
"""

_ASK: Final = """
import sys, sysconfig
print("%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))
"""
_VERSION: Final = re.compile(r"\d+\.\d+t?")
_NAME: Final = re.compile(r"[^\w.-]")
"""Where the name of a requirement ends."""


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
        done = subprocess.run(
            [executable, "-c", _ASK], capture_output=True, text=True, check=True, timeout=60
        )
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


def _places(version: str, environment: Mapping[str, str], pyenv: Path | None) -> Iterator[str]:
    """Where a version may be, the newest of pyenv's first. A free-threaded one may have either name."""
    names = dict.fromkeys((f"python{version}", f"python{version.removesuffix('t')}"))
    for name in names:
        if found := shutil.which(name, path=environment.get("PATH")):
            yield found
    folders = sorted((pyenv / "versions").iterdir(), key=_numbers, reverse=True) if pyenv else []
    for folder in folders:
        for name in names:
            if (candidate := folder / "bin" / name).exists():
                yield str(candidate)


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def find(
    asked: Sequence[str],
    environment: Mapping[str, str],
    pyenv: Path | None,
    version_at: Callable[[str], str | None] = version_of,
) -> dict[str, str | None]:
    """Each version that is asked for, and its interpreter; None where there is none.

    Raises:
        SystemExit: something is neither a version nor an interpreter.
    """
    found: dict[str, str | None] = {}
    for each in asked or VERSIONS:
        if _VERSION.fullmatch(each):
            places = _places(each, environment, pyenv)
            found[each] = next((place for place in places if version_at(place) == each), None)
        elif version := version_at(each):
            found[version] = each
        else:
            raise SystemExit(f"{each} is neither a version such as 3.14t nor a Python that runs")
    return found


# --- an environment for each ---------------------------------------------------------------------------------------


def _is_made(executable: str, folder: Path) -> bool:
    """Whether the environment is this interpreter's, and has what the sources of today are built to."""
    stamp = folder / "made"
    sources = [each for kind in ("pyx", "pxd", "h") for each in CLIENT.glob(f"src/**/*.{kind}")]
    sources += [
        each.with_suffix(".py") for each in CLIENT.glob("src/**/*.pxd") if each.with_suffix(".py").exists()
    ]
    sources += [*(each / "pyproject.toml" for each in PACKAGES), CLIENT / "setup.py"]
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != executable:
        return False
    return all(each.stat().st_mtime < stamp.stat().st_mtime for each in sources)


def optional() -> list[str]:
    """`OPTIONAL` with the versions that pyproject.toml asks for, in the extra `arrow` or the group `test`."""
    told = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    client = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*client["project"]["optional-dependencies"]["arrow"], *told["dependency-groups"]["test"]]
    asked = {_NAME.split(each)[0]: each for each in lines if isinstance(each, str)}
    return [asked.get(name, name) for name in OPTIONAL]


def make(executable: str, folder: Path) -> None:
    """Make the environment.

    Raises:
        subprocess.CalledProcessError: what the tests cannot do without could not be installed.
    """
    if _is_made(executable, folder):
        return
    subprocess.run([executable, "-m", "venv", "--without-pip", "--clear", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
    subprocess.run([*pip, "--prefer-binary", "--group", "core"], cwd=_ROOT, check=True)
    wheels = [*pip, "--only-binary", ":all:"]
    if subprocess.run([*wheels, *optional()], check=False, capture_output=True).returncode:
        for each in optional():
            subprocess.run([*wheels, each], check=False, capture_output=True)
    for package in PACKAGES:
        subprocess.run([*pip, "--no-deps", "--editable", str(package)], check=True)
    (folder / "made").write_text(executable, encoding="utf-8")


def _lacks(folder: Path) -> list[str]:
    """The modules of `OPTIONAL` that it does not have."""
    code = f"import importlib.util as u; print(*[m for m in {[*OPTIONAL.values()]} if not u.find_spec(m)])"
    done = subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


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
    lacking = _lacks(folder)
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
    subprocess.run(command, cwd=_ROOT, env=environment, check=False)
    outcome = Outcome(
        version, f"without {', '.join(lacking)}" if lacking else "", seconds=time.monotonic() - began
    )
    if not report.exists():
        return replace(outcome, said="pytest did not come to its end")
    passed, failed, skipped = counted(report)
    return replace(outcome, passed=passed, failed=failed, skipped=skipped)


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for people."""
    lines = [f"{'Python':<8}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for each in outcomes:
        numbers = (each.passed, each.failed, each.skipped, each.seconds)
        shown = ["-" if number is None else f"{number:.0f}" for number in numbers]
        line = f"{each.version:<8}{shown[0]:>8}{shown[1]:>8}{shown[2]:>9}{shown[3]:>9}  {each.said}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Test with each Python; the arguments are pytest's."""
    outcomes = []
    pythons = find(os.environ.get("PYTHONS", "").split(), os.environ, pyenv_root(os.environ))
    for version, executable in pythons.items():
        if executable is None:
            outcomes.append(Outcome(version, NOT_FOUND))
            continue
        print(f"== {version}: {executable}", flush=True)
        try:
            make(executable, _BUILD / version)
        except subprocess.CalledProcessError as error:
            outcomes.append(Outcome(version, f"no environment: {error}"))
            continue
        outcomes.append(_run(version, _BUILD / version, arguments))
    print(table(outcomes))
    return int(any(each.is_bad for each in outcomes) or all(each.said == NOT_FOUND for each in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
