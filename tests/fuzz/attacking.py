"""Mutations of a target one after the other, each from a seed of its own, by which it can be repeated alone."""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from tests.fuzz.corpus import inputs
from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Story, Tally, Target

__all__ = ["attack", "attacks"]

_MOST_DEAD: Final = 5
"""So many threads that have died are told of."""


def attacks(target: Target | Story, first_seed: int) -> Iterator[tuple[int, Tally | Exception]]:
    """What became of the mutation, or the story, of each seed: a tally, or what must not happen.

    That is what the target raised, with the bytes as a note, or an AssertionError if a thread has died meanwhile.
    """
    tell: Callable[[int], Tally]
    tell = target.tell if isinstance(target, Story) else partial(_mutate, target, Mutator(inputs(target), 0))
    with _watched_threads() as dead:
        for seed in itertools.count(first_seed):
            found: Tally | Exception
            try:
                found = tell(seed)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                found = error
            if dead:
                found = AssertionError("\n".join(dead[:_MOST_DEAD]))
                dead.clear()
            yield seed, found


def attack(target: Target | Story, first_seed: int, mutations: int) -> None:
    """Carry out so many mutations; the first failure is raised, and says how it is repeated."""
    done = 0
    for seed, found in attacks(target, first_seed):
        if isinstance(found, Exception):
            found.add_note(f"python tools/attack.py {target.name} --seed {seed} --alone")
            raise found
        done += found.mutations
        if done >= mutations:
            return


def _mutate(target: Target, mutated: Mutator, seed: int) -> Tally:
    mutated.begin(seed)
    data, tally = mutated(), Tally(1)
    try:
        found = target.check(data)
    except Exception as error:
        error.add_note(f"the input of {target.name}: bytes.fromhex({data.hex()!r})")
        raise
    if isinstance(found, Exception):
        tally.met(found)
    return tally


@contextmanager
def _watched_threads() -> Iterator[list[str]]:
    """Gives the tracebacks of threads that have ended by an exception, and of finalisers that have lost one."""
    dead: list[str] = []

    def ended(arguments: Any) -> None:
        # As text: without the objects that were involved, which would live on.
        lines = traceback.format_exception(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        dead.append("".join(lines))

    before = threading.excepthook, sys.unraisablehook
    threading.excepthook = sys.unraisablehook = ended
    try:
        yield dead
    finally:
        threading.excepthook, sys.unraisablehook = before
