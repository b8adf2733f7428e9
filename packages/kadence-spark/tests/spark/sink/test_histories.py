"""Random histories of a stream on a model of Kafka's coordinators: whatever dies, each row of a batch is seen once.

Anything may end at any call to the cluster: a task, the driver, or a transaction by its timeout. A run may also start
while the driver of the run before is still at work: Spark stops a query without waiting for its Python.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from kadence.errors import IllegalStateError, KafkaError, KafkaTimeoutError, for_code
from kadence.protocol import error_codes
from kadence.types import OffsetAndMetadata, OpenTransaction, TopicPartition
from kadence_spark.sink.decision import Names, Slice, marker
from kadence_spark.sink.ending import Before, abort_batch, commit_batch, look_back

NAMES = Names("team", "f" * 36, "c0ffee")


@dataclass
class Written:
    """A transaction. ``digest``: stands for its rows."""

    batch: int
    digest: str
    group: str
    at: TopicPartition
    mark: OffsetAndMetadata
    state: str = "open"


class Coordinators:
    """Who commits, fences or waits for too long, and what readers see. Any call may be the last one of its caller.

    ``arriving``: offsets of transactions that are committed, by their ids, which their groups do not show yet: brokers
    write the end of a transaction to each partition in its own time.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.current: dict[str, OpenTransaction] = {}
        self.written: dict[OpenTransaction, Written] = {}
        self.groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.arriving: list[tuple[str, str, TopicPartition, OffsetAndMetadata]] = []
        self.deciding = 0
        self.harm = 0.0
        self.between: Callable[[], None] | None = None

    def visible(self, batch: int) -> Counter[str]:
        return Counter(
            each.digest for each in self.written.values() if each.batch == batch and each.state == "committed"
        )

    def write(self, name: str, written: Written) -> OpenTransaction:
        self._step()
        self.fence([name])
        before = self.current.get(name)
        begun = OpenTransaction(name, len(self.current) if before is None else before.producer_id, 0, True)
        if before is not None:
            begun = replace(begun, epoch=before.epoch + 1)
        self.current[name] = begun
        self.written[begun] = written
        return begun

    def time_out(self) -> None:
        for name in list(self.current):
            if self.chance.random() < 0.7:
                self._abort(name)

    def _arrive(self, does: Callable[[str, str], bool]) -> None:
        """Have groups show offsets, those of which ``does`` says so of transactional id and group."""
        for each in [each for each in self.arriving if does(each[0], each[1])]:
            self.arriving.remove(each)
            _, group, at, offset = each
            kept = self.groups.setdefault(group, {})
            # The newer record of the group's log counts, whichever transaction ends first.
            if at not in kept or kept[at].offset <= offset.offset:
                kept[at] = offset

    def _step(self) -> None:
        self._arrive(lambda name, group: self.chance.random() < 0.2)
        if self.chance.random() < self.harm:
            if self.chance.random() < 0.4:
                self.time_out()
            else:
                raise KafkaTimeoutError("whoever calls dies here")
        between, self.between = self.between, None
        if between is not None:
            if self.chance.random() < 0.3:
                between()
            else:
                self.between = between

    def _abort(self, name: str) -> None:
        if name in self.current and self.written[self.current[name]].state == "open":
            self.written[self.current[name]].state = "aborted"

    def open_names(self, prefix: str) -> set[str]:
        self._step()
        return {
            name
            for name, each in self.current.items()
            if name.startswith(prefix) and self.written[each].state == "open"
        }

    def are_open(self, transactions: Collection[OpenTransaction]) -> bool:
        self._step()
        return all(
            self.current.get(each.transactional_id) == each and self.written[each].state == "open"
            for each in transactions
        )

    def end(
        self, transactions: Collection[OpenTransaction], *, committed: bool
    ) -> dict[OpenTransaction, KafkaError]:
        assert committed
        refused: dict[OpenTransaction, KafkaError] = {}
        for each in self.chance.sample(list(transactions), len(transactions)):
            self._step()
            its = self.written.get(each)
            is_current = self.current.get(each.transactional_id) == each
            if its is None or not is_current or its.state == "aborted":
                refused[each] = for_code(error_codes.PRODUCER_FENCED)
            elif its.state == "open":
                its.state = "committed"
                self.arriving.append((each.transactional_id, its.group, its.at, its.mark))
        return refused

    def fence(self, names: Iterable[str]) -> None:
        for name in names:
            self._step()
            self._abort(name)
            self._arrive(lambda owner, group, name=name: owner == name)  # type: ignore[misc]

    def offsets(
        self, group: str, *, stable_at: TopicPartition | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._step()
        if stable_at is not None:
            self._arrive(lambda owner, its: its == group)
        return dict(self.groups.get(group, {}))

    def begin(self, name: str) -> int:
        self._step()
        self._arrive(lambda owner, group: owner == name)
        self.deciding += 1
        return self.deciding

    def commit_offsets(
        self, epoch: int, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        self._step()
        if epoch != self.deciding:
            raise for_code(error_codes.PRODUCER_FENCED)
        for group, kept in offsets.items():
            self.arriving += [(NAMES.decisions, group, at, offset) for at, offset in kept.items()]
        self._step()


class Driver:
    """The coordinators as one driver, or one of its workers, uses them."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._epoch = 0
        self._all = coordinators
        self.open_names = coordinators.open_names
        self.are_open = coordinators.are_open
        self.end = coordinators.end
        self.fence = coordinators.fence
        self.offsets = coordinators.offsets

    def begin(self, name: str) -> None:
        assert name == NAMES.decisions
        self._epoch = self._all.begin(name)

    def commit_offsets(self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        self._all.commit_offsets(self._epoch, offsets)


class Query:
    """Spark: runs of a query, each batch until it is noted as done.

    ``plans``: of each batch, the rows of its tasks; a plan that is not deterministic has several.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = Coordinators(self.chance)
        self.batch = 0
        self.runs = 0
        self.plans: dict[int, list[list[str]]] = {}
        self.refusals: Counter[str] = Counter()

    def plan(self) -> list[str]:
        chance, plans = self.chance, self.plans.setdefault(self.batch, [])
        if not plans or chance.random() < 0.1:
            told = f"{self.batch}.{len(plans)}"
            plans.append(
                [
                    chance.choice(["", f"{told}.{task}", f"{self.batch}.same.{task}"])
                    for task in range(chance.randrange(1, 5))
                ]
            )
        return chance.choice(plans) if chance.random() < 0.2 else plans[0]

    def tasks(self, run: str, looked_back: dict[int, Before]) -> tuple[Before, list[Slice]]:
        chance = self.chance
        befores: list[Before] = []
        slices: dict[int, Slice] = {}
        plan = self.plan()
        attempts = [(task, number) for task in range(len(plan)) for number in range(chance.randrange(1, 4))]
        chance.shuffle(attempts)
        for task, attempt in attempts:
            worker = chance.randrange(4)
            if worker not in looked_back:
                looked_back[worker] = look_back(Driver(self.cluster), NAMES, run, self.batch)
            before, digest = looked_back[worker], plan[task]
            topic = chance.choice("ab") if digest else ""
            each = Slice(task, len(digest), digest, topic)
            if digest:
                at, group = TopicPartition(topic, 0), NAMES.marker(before.side, task)
                mark = OffsetAndMetadata(self.batch, metadata=marker(run, each))
                name = NAMES.transaction(before.side, task, attempt)
                begun = self.cluster.write(name, Written(self.batch, digest, group, at, mark))
                each = replace(each, transaction=begun)
            if task not in slices or chance.random() < 0.3:
                slices[task] = each
                befores.append(before)
        # As StreamWriter.commit chooses.
        before = next((each for each in befores if each.repeats == self.batch), befores[0])
        return before, list(slices.values())

    def run(self, *, beside: bool) -> None:
        """A run, until it dies. ``beside``: the next one may start while this one ends a batch."""
        self.runs += 1
        run = f"run{self.runs}"
        looked_back: dict[int, Before] = {}
        for _ in range(self.chance.randrange(1, 4)):
            batch = self.batch
            try:
                before, slices = self.tasks(run, looked_back)
                if beside:
                    self.cluster.between = lambda: self.run(beside=False)
                commit_batch(Driver(self.cluster), NAMES, run, batch, before, slices)
            except (KafkaError, IllegalStateError) as problem:
                self.cluster.between = None
                self.refusals[type(problem).__name__] += 1
                if self.chance.random() < 0.5:
                    with suppress(KafkaError):
                        abort_batch(Driver(self.cluster), NAMES)
                return
            finally:
                self.check()
            self.cluster.between = None
            if run != f"run{self.runs}" or self.chance.random() < 0.3:
                return  # it dies before Spark notes the batch as done, or was stopped before
            self.batch += 1
            self.check()

    def check(self) -> None:
        """No row is seen twice, rows of two plans are never mixed, and a batch that is done is whole."""
        for batch, plans in self.plans.items():
            seen = self.cluster.visible(batch)
            wanted = [Counter(digest for digest in plan if digest) for plan in plans]
            if batch < self.batch:
                assert seen in wanted, (batch, seen, plans)
            else:
                assert any(seen <= each for each in wanted), (batch, seen, plans)


def history(seed: int, *, beside: bool) -> Query:
    query = Query(seed)
    for _ in range(25):
        query.cluster.harm = query.chance.choice([0.0, 0.02, 0.1])
        query.run(beside=beside and query.chance.random() < 0.5)
    return query


@pytest.mark.parametrize("beside", [False, True])
def test_each_row_is_seen_once_whatever_dies(beside: bool) -> None:
    done, refusals = 0, Counter[str]()
    for seed in range(60):
        query = history(seed, beside=beside)
        done += query.batch
        refusals += query.refusals
    assert done > 500, "most histories go on"
    assert {"KafkaTimeoutError", "TransactionAbortedError"} <= set(refusals)
