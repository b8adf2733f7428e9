"""Environments for tests on other Pythons, with the wheels of a release in them.

The client is compiled for each Python as cibuildwheel would: on Linux for the C library of its manylinux image, with
zig's compiler, and where the Python stands on musl, as on Alpine, with that Python's own compiler. The wheels of the
other packages are the same for all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final

from layout import CLIENT, PACKAGES, ROOT
from packages import Stopwatch, build_pure, client_wheel

__all__ = ["OPTIONAL", "is_made", "lacks", "make", "oldest_glibc", "optional"]

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

_NAME: Final = re.compile(r"[^\w.-]")
"""Where the name of a requirement ends."""


def make(version: str, executable: str, folder: Path) -> None:
    """Make the environment, unless it is there and none of the sources has changed since.

    Raises:
        subprocess.CalledProcessError: what the tests cannot do without could not be installed.
    """
    if is_made(executable, folder):
        return
    began = time.time()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
    subprocess.run([*pip, "--prefer-binary", "--group", "core"], cwd=ROOT, check=True)
    ready = [*pip, "--only-binary", ":all:"]
    if subprocess.run([*ready, *optional()], check=False, capture_output=True).returncode:
        for each in optional():
            subprocess.run([*ready, each], check=False, capture_output=True)
    subprocess.run([*pip, "--no-deps", *_wheels(version, python, folder)], check=True)
    stamp = folder / "made"
    stamp.write_text(executable, encoding="utf-8")
    # A source that changed since may or may not be in the wheels.
    os.utime(stamp, (began, began))


def is_made(executable: str, folder: Path) -> bool:
    """Whether the environment is this interpreter's, and has what the sources of today are built to."""
    stamp = folder / "made"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != executable:
        return False
    sources = [ROOT / "pyproject.toml", CLIENT / "setup.py"]
    for package in PACKAGES:
        sources += [package / "pyproject.toml", *(package / "src").rglob("*.h")]
        sources += (package / "src").rglob("*.p[xy]*")
    return all(each.stat().st_mtime < stamp.stat().st_mtime for each in sources if each.suffix != ".pyc")


def _wheels(version: str, python: str, folder: Path) -> list[Path]:
    """Build the wheels of all packages for this Python."""
    out = folder / "dist"
    watch = Stopwatch()
    source = build_pure(out, folder / "sources", watch)
    is_glibc = sys.platform == "linux" and not version.endswith("-musl")
    wheel = client_wheel(source, out, folder / "compiled", oldest_glibc() if is_glibc else None, python)
    watch.lap(wheel.name)
    return sorted(out.glob("*.whl"))


def oldest_glibc() -> str:
    """The C library of the manylinux image in which cibuildwheel compiles, such as 2.28."""
    told = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    image: str = told["tool"]["cibuildwheel"]["linux"]["manylinux-x86_64-image"]
    return image.removeprefix("manylinux_").replace("_", ".")


def optional() -> list[str]:
    """`OPTIONAL` with the versions that pyproject.toml asks for, in the extra `arrow` or the group `test`."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    client = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*client["project"]["optional-dependencies"]["arrow"], *told["dependency-groups"]["test"]]
    asked = {_NAME.split(each)[0]: each for each in lines if isinstance(each, str)}
    return [asked.get(name, name) for name in OPTIONAL]


def lacks(folder: Path) -> list[str]:
    """The modules of `OPTIONAL` that it does not have."""
    code = f"import importlib.util as u; print(*[m for m in {[*OPTIONAL.values()]} if not u.find_spec(m)])"
    done = subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()
