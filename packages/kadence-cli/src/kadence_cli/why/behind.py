"""Finds the partition of a topic with far more lag than its siblings: a record there may crash its readers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.names import spelled
from kadence_cli.why.finding import Finding, Harm, stood, waiting
from kadence_cli.why.holds import consume, record_details, shown
from kadence_cli.why.looks import Evidence
from kadence_cli.why.watching import Watch

__all__ = ["far_behind"]

_TIMES: Final = 10
"""Its lag is at least this many times the median of its siblings."""

_LEAST: Final = 20
"""The least lag that counts as far behind."""


def far_behind(
    watch: Watch, evidence: Evidence, now_ms: int, told: Collection[TopicPartition]
) -> Iterator[Finding]:
    """One of each topic, if its offset does not move, with or without an owner.

    While members come and go, also the only partition of a topic.

    Args:
        told: partitions that another reason names already.
    """
    topics: dict[str, list[TopicPartition]] = {}
    for tp, each in watch.partitions.items():
        if each.lag is not None:
            topics.setdefault(tp.topic, []).append(tp)
    for siblings in topics.values():
        *others, worst = sorted(siblings, key=watch.lag_of)
        if (
            worst in told
            or not (others or watch.is_loop or (watch.moves and watch.looks_without_members))
            or worst in evidence.read_up
            or not watch.has_stood(worst)
        ):
            continue
        middle, lag = watch.lag_of(others[len(others) // 2]) if others else 0, watch.lag_of(worst)
        committed = watch.partitions[worst].committed
        if committed is None or lag < max(_LEAST, _TIMES * (middle + 1)):
            continue
        seen = evidence.records.get(worst)
        yield Finding(
            "far-behind",
            Harm.STOPS,
            f"{spelled(worst)} stands at offset {committed}"
            + (", far behind its siblings" if others else ""),
            (
                f"{waiting(lag, 'offset')} there"
                + (f", and {middle:,} in the middle one of {plural(len(others), 'other')}" if others else ""),
                f"the committed offset has stood at it for {stood(watch, worst)}",
                *((f"its record is {shown(seen, now_ms)}",) if seen else ()),
                "if its readers fail or crash at one record, it is this one",
            ),
            (consume(worst, committed),),
            (worst,),
            held=lag,
            details=record_details(committed, seen),
        )
