"""The driver's decision on a stream's batch, and its form in Kafka. Values only.

A *slice* is the rows of one task in one transaction. The driver cannot commit several transactions atomically. So
before it commits the first one, it stores the decision which ones are to be committed, as offsets of a group: a
restarted driver reads it and continues. The decision is written in a transaction of the driver's own, whose id is the
query's, so that brokers refuse it from a driver that another one has fenced. Each slice's transaction also has a
*marker*, an offset of another group that becomes visible together with its rows. The marker shows that the slice is
committed, even if its transactional id was used again.

Two successive runs of a query use different ids and different markers (the *side*, 0 or 1, alternates), so that tasks
of a run cannot disturb the decision of the run before, whose markers can be read meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

from kadence.errors import IllegalStateError
from kadence.types import OffsetAndMetadata, OpenTransaction, TopicPartition

__all__ = ["Decision", "Judged", "Names", "Slice", "judged", "marker"]

_FORMAT: Final = 1

_CHUNK: Final = 3_500
"""Characters for one offset's metadata; brokers allow 4,096 bytes by default."""


class Offsets(Protocol):
    """Reads all offsets of a group; or that of one partition, when no transaction has a pending one."""

    def __call__(
        self, group: str, *, stable_at: TopicPartition | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]: ...


@dataclass(frozen=True, slots=True)
class Slice:
    """The slice of one task.

    Attributes:
        partition: the task's. digest: as `RowsDigest.text`. topic: one that it wrote to.
        transaction: None: it had no rows, or was committed before.
    """

    partition: int
    rows: int
    digest: str = ""
    topic: str = ""
    transaction: OpenTransaction | None = None

    @property
    def facts(self) -> tuple[int, str]:
        return (self.rows, self.digest)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a query's transactions and groups.

    Attributes:
        prefix: as `SinkOptions.transactional_prefix`. query: Spark's id of the query, the same in all of its runs.
        checkpoint: as `SinkOptions.checkpoint`; by it a driver without the query's id finds its own transactions.
    """

    prefix: str
    query: str
    checkpoint: str

    def transactions(self, side: int | None = None) -> str:
        """The prefix of its transactional ids, of one side or both."""
        return f"{self.prefix}-{self.query}-" + ("" if side is None else f"{side}-")

    def transaction(self, side: int, partition: int, attempt: int) -> str:
        """The id for an attempt of a task. Attempts do not fence each other; the next batch uses the same ids."""
        return f"{self.transactions(side)}{self.checkpoint}-{partition}-{attempt}"

    @classmethod
    def of_transaction(cls, prefix: str, checkpoint: str, name: str) -> Self | None:
        """The query and side of a transaction, if it is of a query with this prefix and checkpoint."""
        found = re.fullmatch(
            rf"{re.escape(prefix)}-([0-9a-f-]{{36}})-[01]-{re.escape(checkpoint)}-\d+-\d+", name
        )
        return None if found is None else cls(prefix, found[1], checkpoint)

    @property
    def decisions(self) -> str:
        """The group with the decision, and the id of the transaction that writes it."""
        return f"{self.prefix}-{self.query}"

    def more_decisions(self, side: int, number: int) -> str:
        """Groups for the parts of a decision that do not fit into one offset. The run before uses the others."""
        return f"{self.decisions}-{side}-more-{number}"

    def marker(self, side: int, partition: int) -> str:
        """The group of a task's marker: one for each task, because a topic may have only one partition for offsets."""
        return f"{self.decisions}-{side}-{partition}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The slices of a batch that are to be committed.

    Attributes:
        names: of the query. run: Spark's id of the run that decided. side: of its transactions and markers.
        topic: of its offsets in the group; a later decision of the same batch replaces it only under the same topic.
        slices: of all tasks, in order; those without a transaction are empty or known to be committed.
    """

    names: Names
    batch: int
    run: str
    side: int
    topic: str
    slices: tuple[Slice, ...]

    @property
    def undecided(self) -> list[OpenTransaction]:
        """The transactions to commit."""
        return [each.transaction for each in self.slices if each.transaction is not None]

    def kept(self) -> list[tuple[str, OffsetAndMetadata]]:
        """As offsets of groups, to be committed atomically."""
        chunks: list[str] = [""]
        for each in self.slices:
            entry = json.dumps(_entry(each), separators=(",", ":"))
            if not chunks[-1]:
                chunks[-1] = entry
            elif len(chunks[-1]) + len(entry) < _CHUNK:
                chunks[-1] += f",{entry}"
            else:
                chunks.append(entry)
        head = {
            "format": _FORMAT,
            "run": self.run,
            "side": self.side,
            "checkpoint": self.names.checkpoint,
            "more": len(chunks) - 1,
        }
        first = json.dumps(head, separators=(",", ":"))[:-1] + f',"slices":[{chunks[0]}]}}'
        groups = [self.names.more_decisions(self.side, number) for number in range(1, len(chunks))]
        kept = [
            (group, OffsetAndMetadata(self.batch, metadata=f"[{chunk}]"))
            for group, chunk in zip(groups, chunks[1:], strict=True)
        ]
        return [*kept, (self.names.decisions, OffsetAndMetadata(self.batch, metadata=first))]

    @classmethod
    def read(cls, offsets: Offsets, names: Names) -> Self | None:
        """The newest decision in the groups; None: there is none.

        Args:
            offsets: reads those of a group.

        Raises:
            IllegalStateError: it is incomplete, or of a newer version.
        """
        heads = [(at.offset, tp, at.metadata) for tp, at in offsets(names.decisions).items()]
        if not heads:
            return None
        batch, tp, text = max(heads)
        try:
            head = json.loads(text)
            if head["format"] != _FORMAT:
                raise ValueError(f"format {head['format']}")
            side, its = int(head["side"]), replace(names, checkpoint=str(head["checkpoint"]))
            entries = list(head["slices"])
            for number in range(1, head["more"] + 1):
                group = names.more_decisions(side, number)
                more = offsets(group).get(tp)
                if more is None or more.offset < batch:
                    # Groups see the end of one transaction at different times.
                    more = offsets(group, stable_at=tp)[tp]
                if more.offset > batch:
                    # Of the next batch, whose decision is becoming visible: this one is outdated.
                    entries = []
                    break
                if more.offset < batch:
                    raise ValueError(f"part {number} is of batch {more.offset}")
                entries += json.loads(more.metadata)
            slices = tuple(_slice(entry, side, its, tp.topic) for entry in entries)
            return cls(its, batch, str(head["run"]), side, tp.topic, slices)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as problem:
            raise IllegalStateError(
                f"the offsets of group {names.decisions!r} are not what the sink has written there ({problem!r}); "
                "use another transactionalIdPrefix if the group belongs to another application"
            ) from None


def _entry(each: Slice) -> list[object]:
    found = each.transaction
    if found is None:
        return [each.partition, each.rows, each.digest]
    attempt = int(found.transactional_id.rpartition("-")[2])
    return [each.partition, each.rows, each.digest, attempt, found.producer_id, found.epoch, int(found.is_v2)]


def _slice(entry: list[object], side: int, names: Names, topic: str) -> Slice:
    partition, rows, digest, *rest = entry
    transaction = None
    if rest:
        attempt, producer_id, epoch, is_v2 = (int(str(each)) for each in rest)
        name = names.transaction(side, int(str(partition)), attempt)
        transaction = OpenTransaction(name, producer_id, epoch, bool(is_v2))
    return Slice(int(str(partition)), int(str(rows)), str(digest), topic, transaction)


def marker(run: str, each: Slice) -> str:
    """The metadata of a slice's marker."""
    return f"{run} {each.rows} {each.digest}"


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of a batch.

    Attributes:
        decision: to be stored and carried out; None: there is no transaction to commit.
        others: whether other rows were committed before; for the log.
    """

    decision: Decision | None
    others: bool = False


def judged(
    names: Names,
    batch: int,
    run: str,
    side: int,
    slices: Iterable[Slice],
    before: Decision | None,
    markers: Mapping[int, Mapping[TopicPartition, OffsetAndMetadata]],
) -> Judged:
    """Judge the slices of a batch.

    Args:
        before: another run's decision on the same batch, which has no open transactions any more.
        markers: of that run, for each task.

    Raises:
        IllegalStateError: some of its slices are committed, and the tasks have other rows this time.
    """
    written = sorted(slices, key=lambda each: each.partition)
    topic = next((each.topic for each in written if each.topic), "") if before is None else before.topic
    now = Decision(names, batch, run, side, topic, tuple(written))
    if before is None:
        return Judged(now if now.undecided else None)
    proofs = {
        (partition, at.metadata.strip())
        for partition, offsets in markers.items()
        for at in offsets.values()
        if at.offset == batch
    }
    committed = {
        each.partition: each
        for each in before.slices
        if each.rows and (each.transaction is None or (each.partition, marker(before.run, each)) in proofs)
    }
    if not committed:
        return Judged(now if now.undecided else None)
    same = [each.facts for each in before.slices] == [each.facts for each in written]
    if len(committed) == sum(1 for each in before.slices if each.rows):
        return Judged(None, others=not same)
    found = {each.partition: each for each in written}
    changed = [
        partition
        for partition, each in committed.items()
        if partition not in found or found[partition].facts != each.facts
    ]
    if changed or len(written) != len(before.slices):
        raise IllegalStateError(_cannot_go_on(names, batch, committed, before, written, changed))
    rest = [
        replace(committed[each.partition], transaction=None) if each.partition in committed else each
        for each in written
    ]
    return Judged(replace(now, slices=tuple(rest)))


def _cannot_go_on(
    names: Names,
    batch: int,
    committed: Mapping[int, Slice],
    before: Decision,
    written: list[Slice],
    changed: list[int],
) -> str:
    if changed:
        told = ", ".join(str(each) for each in changed[:5]) + (", ..." if len(changed) > 5 else "")
        differs = f"task {told} has other rows this time"
    else:
        differs = f"it had {len(before.slices)} tasks, and has {len(written)} this time"
    return (
        f"batch {batch} is partly committed: the transactions of {len(committed)} of its {len(before.slices)} tasks "
        "were committed, and brokers have aborted the others after kafka.transaction.timeout.ms, because the driver "
        f"was gone for longer. They cannot be written again, because {differs}: the plan is not deterministic, or was "
        "changed. Nothing was committed now. Start the query with the plan that it had. Or have the whole batch "
        f"written again, and what is committed of it twice: delete the group {names.decisions}"
    )
