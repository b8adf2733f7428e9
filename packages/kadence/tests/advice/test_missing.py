"""Advice to install something: each extra that an error names exists, and brings the package that is missing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"kadence\[([a-z0-9,-]+)\]")
NEEDS = re.compile(
    r"needs?(?: the package)? (?!it:)([A-Za-z_-]+)(?: and ([a-z]+))?(?: \(\{problem\}\))?: pip install '?"
    r"kadence\[([a-z0-9,-]+)\]"
)
"""A sentence that names what is missing, and the extra."""


def metadata(package: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((PACKAGES / package / "pyproject.toml").read_text())["project"]
    return found


EXTRAS = metadata("kadence")["optional-dependencies"]


def brought(requirements: list[str]) -> Iterator[str]:
    """The distributions that an extra brings, through the packages of this repository."""
    for requirement in requirements:
        parts = re.match(r"([A-Za-z0-9_-]+)(?:\[([^\]]*)\])?", requirement)
        assert parts is not None
        name, extras = parts[1].lower().replace("_", "-"), parts[2]
        yield name
        if name == "kadence" or name.startswith("kadence-"):
            own = metadata(name)
            yield from brought(own["dependencies"] if name != "kadence" else [])
            for extra in extras.split(",") if extras else ():
                yield from brought(own["optional-dependencies"][extra])


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        # A sentence may be cut into several literals.
        yield path.name, re.sub(r'"\s*\n\s*f?"', "", path.read_text())


def test_every_extra_that_a_text_names_exists() -> None:
    named = {extra for _, text in sources() for found in NAMED.findall(text) for extra in found.split(",")}
    assert named <= set(EXTRAS)
    assert len(named) > 10


SENTENCES = sorted(
    {(name, other, extra) for _, text in sources() for name, other, extra in NEEDS.findall(text)}
)


@pytest.mark.parametrize(("name", "other", "extra"), SENTENCES)
def test_an_extra_brings_what_is_missing(name: str, other: str, extra: str) -> None:
    found = {each for part in extra.split(",") for each in brought(EXTRAS[part])}
    for needed in (name, other) if other else (name,):
        assert needed.lower().replace("_", "-") in found


def test_the_sentences_are_found() -> None:
    assert len(SENTENCES) > 8
