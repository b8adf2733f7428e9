"""Each target with its seeds, with what was once found, and with mutations of both; and each story once.

`make attack` goes on from here with a million mutations, and `make soak` with coverage to guide it where atheris is
there: tools/fuzz.py.
"""

from __future__ import annotations

import threading

import pytest
from tests.fuzz.attacking import attack, attacks
from tests.fuzz.bounds import allocated, steps
from tests.fuzz.corpus import CORPUS, inputs, kept
from tests.fuzz.mutation import Mutator
from tests.fuzz.stories import STORIES
from tests.fuzz.target import Story, Target
from tests.fuzz.targets import TARGETS
from tests.luck import seeds

_STEPS = (60, 4_000)
"""Calls for one byte of input, and before the first."""

every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@pytest.mark.parametrize(
    ("target", "data"),
    [
        pytest.param(target, data, id=f"{target.name}-{name}")
        for target in TARGETS.values()
        for name, data in kept(target).items()
    ],
)
def test_what_was_found_once(target: Target, data: bytes) -> None:
    target.check(data)


@every_target
def test_good_inputs(target: Target) -> None:
    """None is refused, and they are not all without an effect."""
    good = target.seeds()
    found = [target.check(each) for each in good]
    assert any(each is not None and not isinstance(each, Exception) for each in found) or not good


@every_target
@pytest.mark.parametrize("seed", seeds(1))
def test_mutations(target: Target, seed: int) -> None:
    if not inputs(target):
        pytest.skip("what it is for was not built")
    attack(target, seed * target.share, target.share // 20)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
@pytest.mark.parametrize("seed", seeds(1))
def test_stories(story: Story, seed: int) -> None:
    attack(story, seed, 1)


@pytest.mark.parametrize(
    "target", [each for each in TARGETS.values() if each.allocation], ids=lambda each: each.name
)
@pytest.mark.parametrize("seed", seeds(1))
def test_memory_and_steps_are_bounded_by_what_came(target: Target, seed: int) -> None:
    assert target.allocation is not None
    for_a_byte, before_the_first = target.allocation
    mutated = Mutator(inputs(target), seed)
    for number in range(50):
        data = mutated() * (number % 3 + 1)
        taken = allocated(lambda data=data: target.check(data))  # type: ignore[misc]
        assert taken <= before_the_first + for_a_byte * len(data), (taken, data)
        made = steps(lambda data=data: target.check(data))  # type: ignore[misc]
        assert made <= _STEPS[1] + _STEPS[0] * len(data), (made, data)


def test_a_failure_says_what_repeats_it_alone() -> None:
    def check(data: bytes) -> None:
        if data[:1] > b"\x80":
            raise KeyError(data)

    target = Target("odd", lambda: [bytes(40)], check)
    with pytest.raises(KeyError) as raised:
        attack(target, 7, 500)
    data, told = raised.value.__notes__
    seed = int(told.removeprefix("python tools/attack.py odd --seed ").removesuffix(" --alone"))
    again = next(attacks(target, seed))[1]
    assert isinstance(again, KeyError)
    assert again.__notes__ == [data]


def test_a_thread_that_dies_is_a_failure() -> None:
    def die() -> None:
        raise IndexError("nobody waits for it")

    def check(_: bytes) -> None:
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()

    with pytest.raises(AssertionError, match="IndexError: nobody waits for it"):
        attack(Target("odd", lambda: [b""], check), 0, 1)


def test_the_same_seed_makes_the_same_inputs() -> None:
    one, same, other = (Mutator([b"abc", bytes(range(40))], seed) for seed in (1, 1, 2))
    first = [one() for _ in range(50)]
    assert first == [same() for _ in range(50)]
    assert first != [other() for _ in range(50)]
    assert len(set(first)) > 40


def test_the_corpus_is_small_and_has_a_target_for_each_folder() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in CORPUS.rglob("*.bin")) < 1 << 20
