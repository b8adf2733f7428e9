"""``poll_arrow``: as it comes, and with the cap lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness import peers, touch
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import read
from rows import polls

if TYPE_CHECKING:
    from harness.ground import Ground

ROOM = {"buffer.memory": 134_217_728, "max.partition.fetch.bytes": 8_388_608}
"""Room to prefetch, as confluent-kafka's best settings have, though a fraction of it."""


def kadence(plan: Plan) -> Figures:
    return _kadence(plan, None)


def kadence_uncapped(plan: Plan) -> Figures:
    return _kadence(plan, -1)


def kadence_room(plan: Plan) -> Figures:
    return _kadence(plan, -1, **ROOM)


def _kadence(plan: Plan, max_records: int | None, **tuning: Any) -> Figures:
    import pyarrow.compute  # noqa: F401  (imported before the clock starts)

    with peers.kadence(plan, **tuning) as consumer:
        return read(plan, lambda _: touch.table(consumer.poll_arrow(plan.wait, max_records=max_records)))


LINES = {
    "kadence": Line("Kadence, `poll_arrow`, defaults", kadence),
    "kadence-uncapped": Line("Kadence, `poll_arrow(max_records=-1)`", kadence_uncapped),
    "kadence-room": Line("Kadence, the same, 128 MiB of buffer, fetches of 8 MiB", kadence_room),
    "kadence-polls": Line("Kadence, `poll` of 500", polls.kadence_polls),
    "confluent-best": polls.LINES["confluent-best"],
    "confluent-default": polls.LINES["confluent-default"],
}


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    small, large = (
        run_case("arrow", Case(name, f"Arrow tables, {title}", size), LINES, ground, options)
        for name, title, size in (("100B", "100 B", 100), ("1KiB", "1 KiB", 1024))
    )
    return [small.table(), large.table()], [
        small.ratio_goal("`poll_arrow()` as it comes, 100 B", "kadence", "confluent", 8, "confluent's best"),
        large.ratio_goal("`poll_arrow()` as it comes, 1 KiB", "kadence", "confluent", 2, "confluent's best"),
    ]


ROW = Row("arrow", LINES, measure)
