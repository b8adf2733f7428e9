"""Builds the optional C extensions; everything else about the package stands in pyproject.toml.

Every ``src/kadence/**/_*_c.py`` is Cython in pure-Python syntax, with a twin in Python or another way
without it. The environment variable KADENCE_EXTENSION decides:

    auto     (default) compile; when that fails, say so and go on with Python alone
    require  compile, and fail when that fails: for release builds
    off      do not compile

The generated C goes below build/, so no wheel carries it. The build uses CPython's full interface: records are
1.3 to 1.8 times faster than with the stable one.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODES = ("auto", "require", "off")
SOURCE = Path("src")


def mode() -> str:
    value = os.environ.get("KADENCE_EXTENSION", "auto")
    if value not in MODES:
        raise SystemExit(f"KADENCE_EXTENSION must be one of {', '.join(MODES)}, not {value!r}")
    return value


def say(text: str) -> None:
    print(f"kadence: {text}", file=sys.stderr, flush=True)


def extensions() -> list[Extension]:
    """The extensions to build; none when they are off, or cannot be translated and need not be."""
    if mode() == "off":
        say("KADENCE_EXTENSION=off: no extension, Python alone")
        return []
    sources = sorted((SOURCE / "kadence").rglob("_*_c.py"))
    flags = [] if platform.system() == "Windows" else ["-O3", "-g0", "-fno-strict-aliasing"]
    found = [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [path.as_posix()],
            include_dirs=[path.parent.as_posix()],
            depends=sorted(header.as_posix() for header in path.parent.glob("*.h")),
            extra_compile_args=flags,
        )
        for path in sources
    ]
    try:
        from Cython.Build import cythonize

        built: list[Extension] = cythonize(  # type: ignore[no-untyped-call]
            found,
            build_dir="build/cython",
            compiler_directives={
                "language_level": 3,
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": False,
            },
        )
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
    """build_ext that ends with one line on what there is now."""

    def run(self) -> None:
        super().run()
        missing = [
            extension.name
            for extension in self.extensions
            if not Path(self.get_ext_fullpath(extension.name)).exists()
        ]
        if missing:
            say(f"NOT compiled: {', '.join(missing)}; these parts run as plain Python, many times slower")
        elif self.extensions:
            say(f"compiled: {', '.join(extension.name for extension in self.extensions)}")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAndSay})
