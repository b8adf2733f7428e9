"""Work that stays inside max.poll.interval.ms never costs the membership, whatever the group does meanwhile (B12).

Members are slow on purpose: nearly the whole interval passes between two polls, so nothing that a member has to do for
a rebalance may take a second poll.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest
from tests.luck import SOAKING, seeds
from tests.simulated import Group

from kadence import Record
from kadence_testing.simulation import Program, member, writer

_INTERVAL_MS: Final = 10_000
_WORK_S: Final = 0.95 * _INTERVAL_MS / 1000
_REBALANCES: Final = 1_000 if SOAKING else 30
_SETTINGS: Final[dict[str, Any]] = {
    "max.poll.interval.ms": _INTERVAL_MS,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.records": 1,
    "auto.commit.interval.ms": 1_000,
    "stall.report.ratio": 0.99,
}


async def _work(program: Program, record: Record) -> None:
    await asyncio.sleep(_WORK_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "commits",
    [pytest.param(False, id="auto-commit"), pytest.param(True, id="commit()", marks=pytest.mark.heavy)],
)
@pytest.mark.parametrize("seed", seeds(1))
def test_b12_members_that_work_for_nearly_the_interval_are_never_fenced(
    protocol: str, commits: bool, seed: int
) -> None:
    chance = random.Random(seed)
    group = Group({"t": 6}, protocol=protocol)
    group.start("writer", writer(["t"], 20_000, 1.0))
    settings = {**_SETTINGS, "group.protocol": protocol}
    if protocol == "consumer":
        del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
    names = (f"member-{number}" for number in range(1 << 30))

    def join() -> Program:
        return group.start(next(names), member("g", ["t"], _work, settings, commits=commits))

    members = [join(), join()]
    left: list[Program] = []
    rebalances = 0
    while rebalances < _REBALANCES:
        group.run(chance.uniform(1, 3 * _WORK_S))
        if len(members) < 2 or (len(members) < 4 and chance.random() < 0.5):
            members.append(join())
        else:
            going = members.pop(chance.randrange(len(members)))
            going.stop()
            left.append(going)
        rebalances += 1
    group.run(3 * _WORK_S)
    for each in (*members, *left):
        assert not [told for told in each.told if told.kind == "lost"], each.name
    assert sum(told.kind == "revoked" for each in (*members, *left) for told in each.told) > _REBALANCES / 2
