"""`make parity-spark` without Spark: the checks fit their topics, and a difference is seen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformity.checks import Expected

BENCH = Path(__file__).resolve().parents[2] / "bench"
ROWS = {"rows": [["t", 0, 1]], "batches": [1]}
OTHER_ROWS = {"rows": [["t", 0, 2]], "batches": [1]}
OTHER_BATCHES = {"rows": [["t", 0, 1]], "batches": [2]}
ERROR = {"error": "PythonException: option minPartitions: '0' is not a whole number"}


@pytest.fixture(scope="module", autouse=True)
def _bench_on_path() -> Iterator[None]:
    """The benchmarks are programs, and no part of the package."""
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


def test_each_check_has_a_name_of_its_own_a_topic_and_known_actions() -> None:
    from conformity.checks import CHECKS, Do
    from conformity.topics import ACTIONS, SETUPS

    checks = [check for kind in CHECKS.values() for check in kind]
    assert len({check.name for check in checks}) == len(checks)
    assert {check.setup for check in checks} <= SETUPS.keys()
    done = {step.action for check in checks for step in check.steps if isinstance(step, Do)}
    assert done == ACTIONS.keys()
    assert all(not isinstance(check.steps[-1], Do) for check in checks)


@pytest.mark.parametrize(
    ("theirs", "ours", "fits"),
    [
        (ROWS, ROWS, {"same", "same batches"}),
        (ROWS, OTHER_BATCHES, {"same"}),
        (ROWS, OTHER_ROWS, set()),
        (ROWS, ERROR, {"differs"}),
        (ERROR, ERROR, {"refused"}),
        (ERROR, {"error": "something else"}, set()),
        (ERROR, ROWS, set()),
    ],
)
def test_what_fits_an_expectation(theirs: dict[str, Any], ours: dict[str, Any], fits: set[str]) -> None:
    from conformity.checks import Differs, Refused, Same
    from parity import difference

    expectations: dict[str, Expected] = {
        "same": Same(),
        "same batches": Same(batches=True),
        "refused": Refused("minPartitions"),
        "differs": Differs("rows", "error", "a reason"),
    }
    answers = {"kafka": theirs, "kadence": ours}
    assert {name for name, expected in expectations.items() if difference(expected, answers) is None} == fits
