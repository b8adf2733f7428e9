"""Every public name has an entry in docs/reference/, which `make site` fills from its docstrings."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
ENTRIES = [
    entry for page in PAGES for entry in re.findall(r"^<!-- ::: ([\w.]+)", page.read_text(), re.MULTILINE)
]

PUBLIC = (
    "kadence",
    "kadence.admin",
    "kadence_broker",
    "kadence.deserializers",
    "kadence.serializers",
    "kadence.errors",
    "kadence.metrics",
    "kadence.metrics.otel",
    "kadence.metrics.prometheus",
    "kadence.otel",
    "kadence.producer",
    "kadence_schemas",
    "kadence_spark",
    "kadence_spark.pipeline.declare",
    "kadence_testing",
    "kadence_testing.kafka",
    "kadence_testing.pytest_plugin",
    "kadence_testing.schema_registry",
    "kadence_testing.simulation",
    "kadence.types",
)
"""The modules that users import from. What is missing here is internal, whatever its ``__all__`` says."""


def found(name: str) -> object:
    """What a dotted name is, as an import of its module gives it."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_entry(module: str) -> None:
    described = [found(entry) for entry in ENTRIES]
    # A name that `kadence` has as well stands there once, under its shorter name.
    missing = [
        name
        for name in importlib.import_module(module).__all__
        if f"{module}.{name}" not in ENTRIES
        and not any(found(f"{module}.{name}") is each for each in described)
    ]
    assert missing == [], f"add `<!-- ::: {module}.{missing[0]} -->` to a page in docs/reference/"


def test_each_name_has_one_entry() -> None:
    assert sorted(ENTRIES) == sorted(set(ENTRIES))


def test_entries_are_of_names_that_their_modules_make_public() -> None:
    strange = []
    for entry in ENTRIES:
        module, _, name = entry.rpartition(".")
        if module not in PUBLIC or name not in importlib.import_module(module).__all__:
            strange.append(entry)
    assert strange == []
