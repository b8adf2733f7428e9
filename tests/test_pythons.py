"""tools/pythons.py: which Pythons it finds, and what it says of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import get_pythons
import pythons
import wheel_environments
from layout import ROOT
from pythons import NOT_FOUND, Outcome, version_of
from wheel_environments import OPTIONAL, oldest_glibc, optional


def installed(folder: Path, *names: str) -> None:
    """Empty programs of these names; `said` below tells what each would say."""
    folder.mkdir(parents=True)
    for name in names:
        program = folder / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each interpreter of a machine says its version is; a shim without a version behind it says nothing."""
    installed(tmp_path / "bin", "python3.12", "python3.13", "python3.14", "python3.14t")
    installed(tmp_path / "pyenv" / "versions" / "3.13.9" / "bin", "python3.13")
    installed(tmp_path / "pyenv" / "versions" / "3.13.10" / "bin", "python3.13")
    installed(tmp_path / "pyenv" / "versions" / "3.13.2t" / "bin", "python3.13")
    monkeypatch.setattr(pythons, "INTERPRETERS", tmp_path / "made")
    installed(tmp_path / "made" / "3.11-musl" / "bin", "python3.11")
    said = {
        "made/3.11-musl/bin/python3.11": "3.11-musl",
        "bin/python3.12": "3.12",
        "bin/python3.14": "3.14",
        "bin/python3.14t": "3.14t",
        "pyenv/versions/3.13.9/bin/python3.13": "3.13",
        "pyenv/versions/3.13.10/bin/python3.13": "3.13",
        "pyenv/versions/3.13.2t/bin/python3.13": "3.13t",
    }
    return {str(tmp_path / name): version for name, version in said.items()}


def found(machine: dict[str, str], tmp_path: Path, *asked: str) -> dict[str, str | None]:
    """What is found, told from this machine's folder on."""
    environment = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    where = pythons.find(asked, environment, pythons.installed(environment), machine.get)
    return {
        version: None if place is None else Path(place).relative_to(tmp_path).as_posix()
        for version, place in where.items()
    }


def test_each_version_is_found_on_the_path_or_among_those_of_pyenv(
    machine: dict[str, str], tmp_path: Path
) -> None:
    assert found(machine, tmp_path) == {
        "3.11": None,
        "3.12": "bin/python3.12",
        "3.13": "pyenv/versions/3.13.10/bin/python3.13",
        "3.14": "bin/python3.14",
        "3.14t": "bin/python3.14t",
        "3.11-musl": "made/3.11-musl/bin/python3.11",
        "3.14-musl": None,
    }


def test_a_free_threaded_one_may_have_the_name_of_the_other(machine: dict[str, str], tmp_path: Path) -> None:
    assert found(machine, tmp_path, "3.13t", "3.15") == {
        "3.13t": "pyenv/versions/3.13.2t/bin/python3.13",
        "3.15": None,
    }


def test_a_program_says_its_version_threads_and_c_library(tmp_path: Path) -> None:
    """A Python for musl names musl's loader at the beginning of its file; this one is for another library."""
    assert version_of(sys.executable) == f"{sys.version_info[0]}.{sys.version_info[1]}"
    program = tmp_path / "python"
    program.write_bytes(b"ELF...../lib/ld-musl-x86_64.so.1")
    asked = pythons.ASK.replace("sys.executable", repr(str(program)))
    done = subprocess.run((sys.executable, "-c", asked), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{sys.version_info[0]}.{sys.version_info[1]}-musl"


def test_an_interpreter_is_told_by_its_place(machine: dict[str, str], tmp_path: Path) -> None:
    place = "pyenv/versions/3.13.9/bin/python3.13"
    assert found(machine, tmp_path, str(tmp_path / place)) == {"3.13": place}
    with pytest.raises(SystemExit, match="neither a version"):
        found(machine, tmp_path, "/nowhere/python")


def test_pyenv_is_where_its_variable_says() -> None:
    assert pythons.pyenv_root({"PYENV_ROOT": "/somewhere"}) == Path("/somewhere")
    assert pythons.pyenv_root({"PATH": ""}) is None


def test_what_is_optional_has_the_versions_that_the_tests_presume() -> None:
    """kio 0.5 has a wheel for every Python, and does not know the newer error codes."""
    asked = optional()
    assert len(asked) == len(OPTIONAL)
    assert "kio>=0.6.5" in asked
    assert "pyarrow>=18" in asked


def test_what_make_pythons_makes_is_tried() -> None:
    assert get_pythons.MAKERS.keys() <= set(pythons.VERSIONS)


def test_what_is_run_is_there() -> None:
    assert all((ROOT / room).is_dir() for room in pythons.ROOMS)
    assert (ROOT / pythons.FREE_THREADED).is_file()


REPORT: Final = """<testsuites>
<testsuite tests="10" failures="1" errors="2" skipped="3"/><testsuite tests="2" failures="0" errors="0" skipped="0"/>
</testsuites>"""


def test_the_table_says_what_passed_failed_and_was_not_found(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    passed, failed, skipped = pythons.counted(report)
    outcomes = [
        Outcome("3.12", "", passed, failed, skipped, 61.4),
        Outcome("3.14t", "without aiokafka", 12, 0, 0, 60),
        Outcome("3.14", NOT_FOUND),
    ]
    assert pythons.table(outcomes).splitlines() == [
        "Python      passed  failed  skipped  seconds",
        "3.12             6       3        3       61",
        "3.14t           12       0        0       60  without aiokafka",
        "3.14             -       -        -        -  not found",
    ]
    assert [outcome.is_bad for outcome in outcomes] == [True, False, False]
    assert Outcome("3.12", "pytest did not come to its end", seconds=1).is_bad


def test_no_python_at_all_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    (tmp_path / "versions").mkdir()
    monkeypatch.setenv("PYTHONS", "3.12 3.14t")
    assert pythons.main([]) == 1
    assert capsys.readouterr().out.count(NOT_FOUND) == 2


def test_an_environment_that_cannot_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(version: str, executable: str, folder: Path) -> None:
        raise subprocess.CalledProcessError(1, [executable, "-m", "venv"])

    def fail(version: str, executable: str, folder: Path) -> None:
        raise SystemExit("gcc: something\nfailed: pip wheel")

    monkeypatch.setattr(pythons, "find", lambda *_: {"3.12": "/somewhere/python3.12"})
    monkeypatch.setattr(pythons, "make", refuse)
    assert pythons.main([]) == 1
    assert "no environment: Command" in capsys.readouterr().out
    monkeypatch.setattr(pythons, "make", fail)
    assert pythons.main([]) == 1
    said = capsys.readouterr()
    assert "no environment: failed: pip wheel" in said.out
    assert "gcc: something" in said.err


def test_wheels_are_compiled_for_the_c_library_of_the_release() -> None:
    assert re.fullmatch(r"2\.\d+", oldest_glibc())


@pytest.mark.parametrize("changes", [False, True])
def test_wheels_are_built_again_if_a_source_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    """The first build may or may not have what changed while it ran."""
    package, folder = tmp_path / "package", tmp_path / "environment"
    source = package / "src" / "module.py"
    source.parent.mkdir(parents=True)
    for each in (source, package / "pyproject.toml", package / "setup.py", tmp_path / "pyproject.toml"):
        each.touch()
        os.utime(each, (1, 1))

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        folder.mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, 0)

    def wheels(*_: object) -> list[Path]:
        if changes:
            source.touch()
            later = time.time() + 1
            os.utime(source, (later, later))
        return []

    for name, stand_in in (("ROOT", tmp_path), ("CLIENT", package), ("PACKAGES", (package,))):
        monkeypatch.setattr(wheel_environments, name, stand_in)
    monkeypatch.setattr(wheel_environments, "optional", list)
    monkeypatch.setattr(wheel_environments, "_wheels", wheels)
    monkeypatch.setattr(subprocess, "run", run)
    wheel_environments.make("3.12", "python3.12", folder)
    assert wheel_environments.is_made("python3.12", folder) is not changes
    assert not wheel_environments.is_made("another", folder)
