"""Builds the optional C extensions; everything else about the package stands in pyproject.toml.

Every ``src/kadence/**/_*_c.py`` is Cython in pure-Python syntax. Each has a twin in Python, or another way without it.
A ``_*_c.pxd`` without such a file has the C types for the module that is called the same without ``_c``, and which also
runs as it is. So the package works with all of them, with some, or with none. The environment variable
KADENCE_EXTENSION decides:

    auto     (default) compile; what cannot be compiled is named in one line, and runs as plain Python
    require  compile everything that this system can have, what an earlier build compiled too, and fail when that fails:
             for release builds
    off      do not compile

What runs where:

    Linux, macOS  all extensions.
    Windows       all but those of ``POSIX_ONLY``. Python's own sockets run there in place of ``_drain_c``. Nothing
                  stands in for ``_native_heartbeat_c``: whoever holds the interpreter delays heartbeats.
    elsewhere     what the compiler takes (auto).

How a wheel is tagged: with extensions it is for one version of CPython on one system (``cp313-cp313-linux_x86_64``,
which auditwheel turns into ``manylinux_...``). Without any, since they are off or no compiler is there, it is
``py3-none-any``.

The generated C goes below build/, so no wheel carries it. The build uses CPython's full interface: records are
1.3 to 1.8 times faster than with the stable one.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

MODES = ("auto", "require", "off")
SOURCE = Path("src")
TRANSLATED = "build/cython"
PROCESSORS = os.cpu_count() or 1
WINDOWS = sys.platform == "win32"
# They call POSIX's sockets, poll() and threads.
POSIX_ONLY = ("kadence.net._drain_c", "kadence.net._native_heartbeat_c")
_CIMPORT = re.compile(r"^\s*from (?:cython\.cimports\.)?(kadence\.[\w.]+_c) c?import", re.MULTILINE)


def mode() -> str:
    value = os.environ.get("KADENCE_EXTENSION", "auto")
    if value not in MODES:
        raise SystemExit(f"KADENCE_EXTENSION must be one of {', '.join(MODES)}, not {value!r}")
    return value


def say(text: str) -> None:
    print(f"kadence: {text}", file=sys.stderr, flush=True)


def name_of(source: Path) -> str:
    return ".".join(source.relative_to(SOURCE).with_suffix("").parts)


def path_of(name: str) -> Path:
    """The source of an extension: a file for it alone, or the one that also runs as it is."""
    alone = SOURCE.joinpath(*name.split(".")).with_suffix(".py")
    return alone if alone.exists() else alone.with_name(f"{alone.stem.removesuffix('_c')}.py")


def needs(name: str) -> set[str]:
    """The extensions whose C types this one uses, itself or by others: it cannot be loaded without them."""
    types = SOURCE.joinpath(*name.split(".")).with_suffix(".pxd")
    texts = [path.read_text(encoding="utf-8") for path in (path_of(name), types) if path.exists()]
    found = {found for text in texts for found in _CIMPORT.findall(text)} - {name}
    return found.union(*map(needs, found))


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
    # cythonize() compares the sources with what it made of them before. It does not see these directives, nor the types
    # of a source that has another name than its extension.
    seen = [Path("setup.py"), *(SOURCE / "kadence").rglob("_*_c.pxd")]
    newest = max(path.stat().st_mtime for path in seen)
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
    """The extensions to build; none when they are off, or cannot be translated and need not be."""
    if mode() == "off":
        say("KADENCE_EXTENSION=off: no extension, Python alone")
        return []
    names = sorted(
        {name_of(path) for kind in ("py", "pxd") for path in (SOURCE / "kadence").rglob(f"_*_c.{kind}")}
    )
    if WINDOWS:
        say(
            f"not built on Windows: {', '.join(POSIX_ONLY)}; these run as plain Python, without native heartbeats"
        )
        names = [name for name in names if name not in POSIX_ONLY]
    # What a sanitizer reports has the lines of functions only so (tools/check_threads.py).
    tuning = ["-O1", "-g"] if "-fsanitize" in os.environ.get("CFLAGS", "") else ["-O3", "-g0"]
    found = [
        Extension(
            name,
            [path.as_posix()],
            include_dirs=sorted({path_of(each).parent.as_posix() for each in (name, *needs(name))}),
            depends=["setup.py", *sorted(header.as_posix() for header in path.parent.glob("*.h"))],
            extra_compile_args=[] if WINDOWS else [*tuning, "-fno-strict-aliasing"],
        )
        for name, path in ((name, path_of(name)) for name in names)
    ]
    try:
        built = translated(found)
    except Exception as error:
        if mode() == "require":
            raise
        say(f"the extension could not be translated to C ({error}); going on with Python alone")
        return []
    for extension in built:
        # cythonize() drops the flag when it is given to the extensions before.
        extension.optional = mode() == "auto"
    return built


class BuildAndSay(build_ext):  # type: ignore[misc]
    """build_ext that compiles on all processors, and ends with one line on what there is now."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = PROCESSORS
        if mode() == "require":
            # Whether a compiler works shows only when it compiles.
            self.force = True

    def run(self) -> None:
        for each in self.extensions:
            self.drop_stale(each)
        super().run()
        missing = [each.name for each in self.extensions if not self.file_of(each.name).exists()]
        while widowed := [
            each.name
            for each in self.extensions
            if each.name not in missing and needs(each.name) & {*missing}
        ]:
            # It was compiled, and what it needs was not: it could not be loaded.
            for name in widowed:
                self.file_of(name).unlink()
            missing += widowed
        if missing:
            say(f"NOT compiled: {', '.join(missing)}; these parts run as plain Python, many times slower")
        if compiled := [each.name for each in self.extensions if each.name not in missing]:
            say(f"compiled: {', '.join(compiled)}")
        if missing and not compiled:
            # What follows sees a package without extensions: its wheel is for every system.
            self.distribution.ext_modules = self.extensions = []

    def drop_stale(self, extension: Extension) -> None:
        """Remove what an earlier build made, if it is to be made anew: where that fails nobody must take it for new."""
        built = Path(self.build_lib, self.get_ext_filename(extension.name))
        if self.force or newer_group([*extension.sources, *extension.depends], built, "newer"):
            built.unlink(missing_ok=True)
            self.file_of(extension.name).unlink(missing_ok=True)

    def file_of(self, name: str) -> Path:
        return Path(self.get_ext_fullpath(name))


class TaggedByContent(bdist_wheel):  # type: ignore[misc]
    """bdist_wheel that tags by what was compiled, not by what was meant to be."""

    def run_command(self, command: str) -> None:
        super().run_command(command)
        if command == "build":
            self.root_is_pure = not self.distribution.has_ext_modules()


if __name__ == "__main__":
    commands: dict[str, Any] = {"build_ext": BuildAndSay, "bdist_wheel": TaggedByContent}
    setup(ext_modules=extensions(), cmdclass=commands)
