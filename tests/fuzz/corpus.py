"""Inputs that are kept: each once was a failure, or leads where the seeds do not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.fuzz.target import Target

__all__ = ["CORPUS", "inputs", "kept"]

CORPUS: Final = Path(__file__).with_name("corpus")


def kept(target: Target) -> dict[str, bytes]:
    """By file name, which says what was wrong."""
    return {path.name: path.read_bytes() for path in sorted(CORPUS.joinpath(target.name).glob("*.bin"))}


def inputs(target: Target) -> list[bytes]:
    """What fuzzing of the target begins from."""
    return [*target.seeds(), *kept(target).values()]
