"""Where the packages of this checkout are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["CLIENT", "INTERPRETERS", "PACKAGES", "ROOT", "add_tests_to_path"]

ROOT: Final = Path(__file__).resolve().parent.parent
INTERPRETERS: Final = ROOT / "build" / "interpreters"
"""Where `make pythons` puts the Pythons that it makes, each in a folder of its own."""
CLIENT: Final = ROOT / "packages" / "kadence"
"""The package that is compiled, and from which the others have their version."""
PACKAGES: Final = (
    CLIENT,
    *(ROOT / "packages" / f"kadence-{name}" for name in ("schemas", "broker", "spark", "cli")),
)
"""Each with pyproject.toml, README.md, src and tests; a package comes after those that it needs."""


def add_tests_to_path() -> None:
    """Let this process import ``tests``, which is one package in as many folders, and what stands beside this file."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tools"), *map(str, PACKAGES)]
