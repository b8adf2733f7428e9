"""Compiles the extensions; everything else about the package stands in pyproject.toml.

Each ``src/kadence/_native/*.pyx`` is one, and so is each module of ``ONE_SOURCE``: a file that mypy reads, and that
runs compiled only. Linux and macOS have all of them, Windows all but those of ``POSIX_ONLY``: it runs Python's own
sockets in place of ``drain``, and nothing in place of ``native_heartbeat``, so whoever holds the interpreter there
delays heartbeats.

A wheel is for one version of CPython on one system (``cp313-cp313-linux_x86_64``, which auditwheel turns into
``manylinux_...``). The generated C goes below build/, so no wheel carries it. The build uses CPython's full interface:
records are 1.3 to 1.8 times faster than with the stable one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError, ExecError, PlatformError
from setuptools.modified import newer_group

SOURCE = Path("src")
NATIVE = SOURCE / "kadence" / "_native"
TRANSLATED = "build/cython"
PROCESSORS = os.cpu_count() or 1
WINDOWS = sys.platform == "win32"
# They call POSIX's sockets, poll() and threads.
POSIX_ONLY = ("kadence._native.drain", "kadence._native.native_heartbeat", "kadence._native.sends")
ONE_SOURCE = (
    "kadence.consumer._decoded_records",
    "kadence.consumer.fetch._fetch_collector",
    "kadence.consumer.fetch._iteration",
    "kadence.consumer.fetch._partition_reader",
    "kadence.consumer.fetch._steps",
    "kadence.records.fetched",
    "kadence.share.application._marks",
)
NO_COMPILER = (
    "Kadence is compiled, and there is no C compiler here that finds Python's headers: install one (Debian: gcc and "
    "python3-dev), or a wheel of Kadence for this system"
)


def name_of(source: Path) -> str:
    return ".".join(source.relative_to(SOURCE).with_suffix("").parts)


def translated(found: list[Extension]) -> list[Extension]:
    """The same in C."""
    from Cython.Build import cythonize

    directives = {
        "language_level": 3,
        "freethreading_compatible": True,
        "boundscheck": False,
        "wraparound": False,
        "cdivision": True,
        "initializedcheck": False,
        # Cython's pickles take a pointer for a text: a copy would read and free memory that is not its own.
        "auto_pickle": False,
    }
    # cythonize() compares the sources with what it made of them before. It does not see these directives.
    newest = Path(__file__).stat().st_mtime
    options: dict[str, Any] = {
        "build_dir": TRANSLATED,
        "compiler_directives": directives,
        "force": any(made.stat().st_mtime < newest for made in Path(TRANSLATED).rglob("*.c")),
    }
    try:
        return list(cythonize(found, nthreads=PROCESSORS, **options))
    except (ImportError, OSError):
        # A sandbox may forbid what processes need to work together.
        return list(cythonize(found, **options))


def extensions() -> list[Extension]:
    paths = {name_of(path): path for path in sorted(NATIVE.glob("*.pyx"))}
    paths |= {name: SOURCE.joinpath(*name.split(".")).with_suffix(".py") for name in ONE_SOURCE}
    if WINDOWS:
        paths = {name: path for name, path in paths.items() if name not in POSIX_ONLY}
    # What a sanitizer reports has the lines of functions only so (tools/check_threads.py).
    tuning = ["-O1", "-g"] if "-fsanitize" in os.environ.get("CFLAGS", "") else ["-O3", "-g0"]
    headers = sorted(header.as_posix() for header in NATIVE.glob("*.h"))
    return [
        Extension(
            name,
            [path.as_posix()],
            include_dirs=[NATIVE.as_posix()],
            depends=["setup.py", *headers],
            extra_compile_args=[] if WINDOWS else [*tuning, "-fno-strict-aliasing"],
        )
        for name, path in paths.items()
    ]


class Compile(build_ext):  # type: ignore[misc]
    """build_ext on all processors, which says in one sentence that it has no compiler."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = PROCESSORS

    def run(self) -> None:
        # setuptools builds elsewhere, and copies what it has built.
        self.is_in_place = bool(self.inplace)
        super().run()

    def build_extensions(self) -> None:
        if not self.can_compile():
            raise SystemExit(f"kadence: {NO_COMPILER}")
        sources = {each.name: each.sources for each in translated(self.extensions)}
        for each in self.extensions:
            each.sources = sources[each.name]
            self.drop_stale(each)
        super().build_extensions()

    def can_compile(self) -> bool:
        """Whether there is a compiler, and it finds Python's headers."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("#include <Python.h>\n", encoding="utf-8")
            try:
                self.compiler.compile([str(source)], output_dir=folder)
            except (CCompilerError, CompileError, ExecError, PlatformError):
                return False
        return True

    def drop_stale(self, extension: Extension) -> None:
        """Remove what an earlier build made, if it is to be made anew: where that fails nobody must take it for new."""
        name = self.get_ext_filename(extension.name)
        built = Path(self.build_lib, name)
        if self.force or newer_group([*extension.sources, *extension.depends], built, "newer"):
            built.unlink(missing_ok=True)
            if self.is_in_place:
                (SOURCE / name).unlink(missing_ok=True)


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": Compile})
