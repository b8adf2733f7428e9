"""Asks the brokers, on a thread of its own, and keeps the answers. Groups are not changed.

A round asks for the list of groups, and for details of some of them: of the groups on the screen, and then of those
that were asked for longest ago, up to a number of partitions. So the cost is bounded in large clusters, where groups
off the screen are a few rounds old.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kadence.admin import Admin, GroupListing
from kadence.clock import Clock, SystemClock, wall_ms
from kadence.errors import KafkaError, KafkaTimeoutError, TransportError, UnknownTopicOrPartitionError
from kadence.lazy_dataclasses import dataclass, field
from kadence.types import TopicPartition
from kadence_cli.group_types import Description, Place, described, is_share, places, places_again
from kadence_cli.top.local import Process, processes
from kadence_cli.top.records import Records, read
from kadence_cli.top.sampling import GroupHistory, Sample
from kadence_cli.why.finding import Finding
from kadence_cli.why.inquiry import Inquiry

__all__ = ["Gatherer", "Model", "Round", "Why", "Wish"]

PATIENCE_S: Final = 5.0
"""How long one call may take. If a broker is silent for longer, the screen shows it, and the next round asks again."""

OTHERS: Final = 2_000
"""How many partitions of groups off the screen a round asks for; each partition takes time."""

_LEAST: Final = 20
"""The least number of partitions that a group counts for, also while it is unknown."""

_NEVER_S: Final = float("inf")

_ABSENT_MS: Final = 30_000
"""How long a partition that brokers do not know is left out: each call would wait for it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The requests of the next rounds.

    Attributes:
        groups: those on the screen. others: how many partitions of further groups. listing: whether the list of groups
            is needed. why: the group whose lag is explained; empty: none. records: the partition whose records are
            shown, and the first offset.
    """

    groups: tuple[str, ...] = ()
    others: int = OTHERS
    listing: bool = True
    why: str = ""
    records: tuple[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a group lags: the headline, and the reasons; see `kadence_cli.why`."""

    group: str
    says: str
    found: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """The answers of one round.

    Attributes:
        at: when it ended (monotonic ms). wall: the same in seconds since 1970. took: seconds.
        listing: all groups; None if not requested or not answered.
        samples: each requested group, with the time of its sample (monotonic ms).
        refused: groups that cannot be described, and the reasons. trouble: the error of the connection to the brokers;
            empty without one. processes: the consumers that publish their state on this machine. why: the reasons of
            the requested group. records: the requested ones.
    """

    at: int
    wall: float
    took: float
    listing: tuple[GroupListing, ...] | None = None
    samples: Mapping[str, tuple[int, Sample]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    processes: tuple[Process, ...] = ()
    why: Why | None = None
    records: Records | None = None


class Model:
    """The answers of all rounds. One thread.

    Attributes:
        groups: the listing, by name. histories: of the samples of each group. refused: groups that cannot be described,
            and the reasons. processes: the consumers that publish their state on this machine. trouble: the error of
            the latest round. latest: that round. why: the reasons why a group lags, if requested.
        records: those of the partition that was opened last.
    """

    def __init__(self) -> None:
        self.groups: dict[str, GroupListing] = {}
        self.histories: dict[str, GroupHistory] = {}
        self.refused: dict[str, str] = {}
        self.processes: tuple[Process, ...] = ()
        self.trouble = ""
        self.latest: Round | None = None
        self.why: Why | None = None
        self.records: Records | None = None

    def history(self, group: str) -> GroupHistory:
        """The history of a group, which may be empty."""
        return self.histories.setdefault(group, GroupHistory(group))

    def add(self, round_: Round) -> None:
        """Take in a round."""
        self.latest, self.trouble, self.processes = round_, round_.trouble, round_.processes
        self.why = round_.why or self.why
        self.records = round_.records or self.records
        if round_.listing is not None:
            self.groups = {group.group_id: group for group in round_.listing}
            for name in self.histories.keys() - self.groups.keys() - round_.samples.keys():
                self.histories[name].gone("the group is gone", round_.wall)
        for name, (at, sample) in round_.samples.items():
            self.refused.pop(name, None)
            self.history(name).add(sample, at, round_.wall)
        for name, why in round_.refused.items():
            self.refused[name] = why
            self.history(name).gone(why, round_.wall)


class Gatherer:
    """Makes rounds on a thread of its own.

    Args:
        config: of the admin client. deliver: called with each round, on the thread. delay: seconds from the beginning
            of a round to that of the next.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        deliver: Callable[[Round], None],
        *,
        delay: float,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._records: Records | None = None
        self._admin = Admin(config)
        self._inquiry = Inquiry(self._admin, config)
        self._deliver = deliver
        self._clock = clock or SystemClock()
        self._delay = delay
        self._wish = Wish()
        self._asked: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._absent: dict[TopicPartition, int] = {}
        self._is_over = False
        self._is_paused = False
        self._is_hurried = False
        self._changed = threading.Condition()
        # A daemon: quitting must not wait for brokers.
        self._thread = threading.Thread(target=self._work, name="kadence-top", daemon=True)

    def start(self) -> None:
        """Begin with the first round."""
        self._thread.start()

    def close(self) -> None:
        """End the rounds. Waits for a moment, but not for silent brokers."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread.ident is None:
            self._admin.close()
        else:
            self._thread.join(0.5)

    def change(
        self, *, wish: Wish | None = None, delay: float | None = None, paused: bool | None = None
    ) -> None:
        """Change the wishes, the delay, or pause. A new wish starts a round at once."""
        with self._changed:
            if wish is not None and wish != self._wish:
                self._is_hurried |= not set(wish.groups) <= set(self._wish.groups) or (
                    wish.why,
                    wish.records,
                ) != (self._wish.why, self._wish.records)
                self._wish = wish
            if delay is not None:
                self._delay = delay
            if paused is not None:
                self._is_paused = paused
            self._changed.notify()

    # ------------------------------------------------------------ the thread

    def _work(self) -> None:
        with self._admin:
            while True:
                began = time.monotonic()
                with self._changed:
                    wish, self._is_hurried = self._wish, False
                    if self._is_over:
                        return
                    is_paused = self._is_paused
                if not is_paused:
                    found = self.round(wish)
                    if not self._is_over:
                        self._deliver(found)
                with self._changed:
                    while (left := self._left(began)) > 0:
                        self._changed.wait(left if left < _NEVER_S else None)

    def _left(self, began: float) -> float:
        """Seconds until the next round; 0: at once."""
        if self._is_over:
            return 0
        if self._is_paused:
            return _NEVER_S
        return 0 if self._is_hurried else began + self._delay - time.monotonic()

    def round(self, wish: Wish) -> Round:
        """Make one round."""
        began = self._clock.now_ms()
        listing: tuple[GroupListing, ...] | None = None
        samples: dict[str, tuple[int, Sample]] = {}
        refused: dict[str, str] = {}
        trouble = ""
        why: Why | None = None
        try:
            if wish.listing:
                listing = tuple(self._admin.list_groups(timeout=PATIENCE_S))
            chosen = self._chosen(wish, listing)
            if chosen:
                self._describe(chosen, samples, refused)
            why = self._ask_why(wish.why)
            self._read(wish.records)
        except KafkaError as error:
            trouble = _told(error)
        now = self._clock.now_ms()
        took = (now - began) / 1000
        return Round(
            now, time.time(), took, listing, samples, refused, trouble, processes(), why, self._records
        )

    def _read(self, wanted: tuple[TopicPartition, int] | None) -> None:
        """Read records. They do not change, so each place is read once; a place without records is read again."""
        kept = self._records
        if wanted is not None and (kept is None or kept.trouble or (kept.partition, kept.start) != wanted):
            self._records = read(self._config, *wanted)

    def _ask_why(self, group: str) -> Why | None:
        if not group:
            return None
        try:
            says, found = self._inquiry.ask(group, self._clock.now_ms(), wall_ms())
        except KafkaError as error:
            _raise_trouble([error])
            return Why(group, _told(error))
        return Why(group, says, tuple(found))

    def _chosen(self, wish: Wish, listing: tuple[GroupListing, ...] | None) -> list[str]:
        chosen = list(wish.groups)
        if listing is not None:
            names = [group.group_id for group in listing]
            self._asked = {name: self._asked.get(name, -1) for name in names}
            self._sizes = {name: self._sizes[name] for name in names if name in self._sizes}
            rest = set(names).difference(chosen)
            room = wish.others
            for name in sorted(rest, key=lambda name: (self._asked[name], name)):
                # The last one may exceed the limit; otherwise a large group would never be sampled.
                if room <= 0:
                    break
                chosen.append(name)
                room -= max(_LEAST, self._sizes.get(name, 0))
        self._asked.update(dict.fromkeys(chosen, self._clock.now_ms()))
        return chosen

    def _describe(
        self, names: list[str], samples: dict[str, tuple[int, Sample]], refused: dict[str, str]
    ) -> None:
        groups = described(self._admin, names, PATIENCE_S)
        _raise_trouble(groups.errors.values())
        refused.update({name: str(error) for name, error in groups.errors.items()})
        found = places(self._admin, groups, PATIENCE_S)
        _raise_trouble(found.errors.values())
        refused.update({name: str(error) for name, error in found.errors.items()})
        placed_at = self._clock.now_ms()
        partitions = {
            name: of_group.keys() | {tp for member in groups[name].members for tp in member.assignment}
            for name, of_group in found.items()
        }
        ends = self._ends({tp for of_group in partitions.values() for tp in of_group})
        now = places_again(self._admin, {name: groups[name] for name in found}, found, PATIENCE_S)
        for name, of_group in now.items():
            self._sizes[name] = len(partitions[name])
            samples[name] = (placed_at, _sample(groups[name], partitions[name], of_group, ends))

    def _ends(self, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
        now = self._clock.now_ms()
        self._absent = {tp: until for tp, until in self._absent.items() if until > now}
        asked = sorted(wanted.difference(self._absent))
        if not asked:
            return {}
        found = self._admin.list_offsets(
            dict.fromkeys(asked, "latest"), raise_errors=False, timeout=PATIENCE_S
        )
        for tp, error in found.errors.items():
            if _is_absence(error):
                self._absent[tp] = now + _ABSENT_MS
        return {tp: at.offset for tp, at in found.items() if at is not None}


def _sample(
    group: Description,
    partitions: Iterable[TopicPartition],
    found: Mapping[TopicPartition, Place],
    ends: Mapping[TopicPartition, int],
) -> Sample:
    """A sample of a group. What is done above the start offsets of a share group counts as committed."""
    ends = {tp: ends[tp] for tp in partitions if tp in ends}
    placed = {tp: (at, at.offset) for tp, at in found.items() if at.offset is not None}
    above = {tp: at.above(ends.get(tp)) for tp, (at, _) in placed.items()}
    if is_share(group):
        return Sample(group, {tp: offset + above[tp] for tp, (_, offset) in placed.items()}, ends)
    committed = {tp: offset for tp, (_, offset) in placed.items()}
    return Sample(group, committed, ends, {tp: above[tp] for tp, (at, _) in placed.items() if at.metadata})


def _is_absence(error: BaseException) -> bool:
    return isinstance(error, UnknownTopicOrPartitionError) or isinstance(
        error.__cause__, UnknownTopicOrPartitionError
    )


def _raise_trouble(errors: Iterable[KafkaError]) -> None:
    """Raise an error of the connection to the brokers, which ends the round; errors of one group do not."""
    for error in errors:
        if isinstance(error, KafkaTimeoutError | TransportError):
            raise error


def _told(error: KafkaError) -> str:
    """The error in one line; for a timeout, its cause."""
    why = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
    return " ".join(str(why).split())
