"""Jars from Maven, resolved once per user and kept: real Kafka, and Spark's JVM connector for the bench.

The POM is in the cache, beside the resolved jars: Maven reads the POM of its working directory, and another
POM could break the call.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kadence.errors import MissingDependencyError
from kadence.java import cache_directory, find_java
from kadence.own_files import check_own, own_directory

__all__ = ["maven_jars"]


def maven_jars(name: str, coordinates: Sequence[str], excluded: Sequence[str] = ()) -> Path:
    """A directory, cached as ``name``, with the runtime jars of Maven ``coordinates`` (``group:artifact:version``).

    A lock file lets one process resolve while others wait. The directory appears by one rename, so that an
    interrupted run leaves no incomplete directory.

    Args:
        excluded: ``group:artifact`` of dependencies to leave out, also of other dependencies.

    Raises:
        MissingDependencyError: Maven is missing, or could not get them.
        PermissionError: the cache belongs to another user, or others may write to it.
    """
    home = own_directory(own_directory(cache_directory() / "jars") / name)
    jars = home / "libs"
    if jars.is_dir():
        check_own(jars)
        return jars
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _resolve(home, coordinates, excluded)
            (home / "libs.partial").rename(jars)
    return jars


def _resolve(home: Path, coordinates: Sequence[str], excluded: Sequence[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingDependencyError(
            f"the jars of {home.name} are not cached in {home}, and Apache Maven (`mvn`), which gets them, "
            "is not on PATH. Install it (Debian: `apt-get install maven`, macOS: `brew install maven`)."
        )
    partial = home / "libs.partial"
    shutil.rmtree(partial, ignore_errors=True)
    (home / "pom.xml").write_text(_pom(home.name, coordinates, excluded))
    command = [maven, "-B", "-q", "-f", str(home / "pom.xml"), "dependency:copy-dependencies"]
    environment = {**os.environ, "JAVA_HOME": str(find_java().home)}
    done = subprocess.run(
        [*command, "-DincludeScope=runtime", f"-DoutputDirectory={partial}"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=home,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise MissingDependencyError(
            f"Maven could not resolve {', '.join(coordinates)} (POM in {home}):\n" + "\n".join(lines[:8])
        )


def _pom(name: str, coordinates: Sequence[str], excluded: Sequence[str]) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in (text.split(":") for text in excluded)
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>\n"
        for group, artifact, version in (text.split(":") for text in coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        f"<groupId>kadence</groupId><artifactId>{name}</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )
