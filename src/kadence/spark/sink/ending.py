"""What the driver does at the end of a job or of a stream's batch: it ends the transactions of the tasks.

Nothing is committed in a task. Spark's driver knows which attempt of each task counts, and only those are committed;
whatever else is open under the names of the job or the query is fenced, which aborts it, so that no reader waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kadence.errors import IllegalStateError, KafkaError, TransactionAbortedError
from kadence.logs import logger
from kadence.spark.sink.decision import Decision, Names, Slice, judged
from kadence.types import OffsetAndMetadata, OpenTransaction, TopicPartition

__all__ = [
    "Before",
    "Cluster",
    "abort_batch",
    "abort_job",
    "abort_unknown",
    "commit_batch",
    "commit_job",
    "look_back",
]

_log = logger("kadence.spark")


class Cluster(Protocol):
    """The coordinators of transactions and of groups. Any call raises `KafkaError` when it cannot be made."""

    def open_names(self, prefix: str) -> set[str]:
        """Transactional ids that begin so and have an open transaction."""

    def are_open(self, transactions: Collection[OpenTransaction]) -> bool:
        """Whether all of these are open."""

    def end(
        self, transactions: Collection[OpenTransaction], *, committed: bool
    ) -> dict[OpenTransaction, KafkaError]:
        """Commit or abort. Returns those that were not open any more and had not ended in this way, with the reason."""

    def fence(self, names: Iterable[str]) -> None:
        """Abort what is open under these ids, and keep their producers from going on.

        Transactions that are being ended have ended when this returns: all that they have written can be seen.
        """

    def offsets(
        self, group: str, *, stable_at: TopicPartition | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """All offsets of a group; or that of one partition, once no transaction has one pending."""

    def begin(self, name: str) -> None:
        """Begin a transaction of the caller's own. Whoever has begun one under this id before cannot commit it."""

    def commit_offsets(self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        """Have groups keep these, all or none: in the transaction that was begun, which this commits.

        Raises:
            KafkaError: among others, somebody else has begun one under its id since; nothing is kept then.
        """


def commit_job(cluster: Cluster, prefix: str, accepted: Iterable[OpenTransaction]) -> None:
    """Commit what the tasks of a batch job have written.

    Args:
        prefix: what the ids of the job begin with. accepted: what Spark has accepted.

    Raises:
        TransactionAbortedError: brokers have aborted some; says whether others are committed.
    """
    counted = list(accepted)
    _check_open(cluster, prefix, counted)
    _commit(cluster, counted, "the rows of the others are committed")


def abort_job(cluster: Cluster, prefix: str) -> None:
    """Abort what the tasks of a batch job have open."""
    cluster.fence(cluster.open_names(prefix))


@dataclass(frozen=True, slots=True)
class Before:
    """What a run has found of the runs before.

    Attributes:
        side: that of this run. repeats: the batch that another run has decided, and that is not Spark's past yet.
    """

    side: int
    repeats: int | None


def look_back(cluster: Cluster, names: Names, run: str, batch: int) -> Before:
    """What a worker does before it writes for the first time in a run: it ends what the runs before have left.

    Raises:
        IllegalStateError: the checkpoint is older than what the sink has committed.
    """
    decision = Decision.read(cluster.offsets, names)
    if decision is None:
        return Before(0, None)
    if decision.run == run:
        return Before(decision.side, None)
    if decision.batch > batch:
        raise IllegalStateError(
            f"this is batch {batch} of query {names.query}, and the sink has committed its batch {decision.batch}: the "
            "checkpoint, or txnVersion, is older than what is written, and rows would be written twice. To have them "
            f"written again, delete the group {names.decisions}"
        )
    # As soon as possible: brokers abort it after transaction.timeout.ms.
    _carry_out(cluster, decision)
    cluster.fence(cluster.open_names(names.transactions(decision.side)))
    return Before(1 - decision.side, decision.batch if decision.batch == batch else None)


def commit_batch(
    cluster: Cluster, names: Names, run: str, batch: int, before: Before, slices: Collection[Slice]
) -> None:
    """Commit what the tasks of a stream's batch have written, unless it was committed before.

    Raises:
        IllegalStateError: the batch is partly committed, and the tasks have other rows this time.
        TransactionAbortedError: brokers have aborted what a task has written, or another driver of the query was at
            work. The query can be started again.
    """
    written = [each.transaction for each in slices if each.transaction is not None]
    # From here on no other driver keeps a decision, unless it does this in its turn: then this one keeps none.
    cluster.begin(names.decisions)
    # Also what the driver of another run still wants to commit. What it has committed, its decision says.
    _fence_others(cluster, names.transactions(), written)
    decided = Decision.read(cluster.offsets, names)
    markers: dict[int, Mapping[TopicPartition, OffsetAndMetadata]] = {}
    if not _fits(decided, names, batch, run, before, written):
        cluster.fence(cluster.open_names(names.transactions()))
        raise TransactionAbortedError(
            f"another driver of query {names.query} was at work at the same time, so nothing of batch {batch} is "
            "committed here; start the query again"
        )
    if decided is not None and before.repeats == batch:
        # The end of some may still be on its way to the groups. A group does not tell of an offset that is pending and
        # its first one, so waiting until its offsets are stable is not enough.
        cluster.fence(each.transactional_id for each in decided.undecided)
        markers = {
            each.partition: cluster.offsets(names.marker(decided.side, each.partition))
            for each in decided.slices
            if each.transaction is not None
        }
    else:
        decided = None
    try:
        verdict = judged(names, batch, run, before.side, slices, decided, markers)
    except IllegalStateError:
        cluster.fence(cluster.open_names(names.transactions()))
        raise
    if decided is not None:
        _tell(batch, names, verdict.decision is None, others=verdict.others)
    wanted = [] if verdict.decision is None else verdict.decision.undecided
    _check_open(cluster, names.transactions(), wanted)
    if verdict.decision is not None:
        at = TopicPartition(verdict.decision.topic, 0)
        cluster.commit_offsets({group: {at: offset} for group, offset in verdict.decision.kept()})
    _commit(cluster, wanted, "started again, the query writes this batch's rows that are missing")


def _fits(
    decided: Decision | None,
    names: Names,
    batch: int,
    run: str,
    before: Before,
    written: Collection[OpenTransaction],
) -> bool:
    """Whether the tasks knew what is decided: Spark does not wait for a query's Python when it stops the query."""
    side = names.transactions(before.side)
    if not all(each.transactional_id.startswith(side) for each in written):
        return False
    if decided is None:
        return before.repeats != batch
    if decided.run == run:
        return decided.batch < batch
    return (
        decided.side != before.side and decided.batch == batch
        if before.repeats == batch
        else decided.batch < batch
    )


def abort_batch(cluster: Cluster, names: Names) -> None:
    """Abort what the tasks of a stream's batch have open, unless it is decided that it is committed."""
    # What became of the decision that was being kept is known then.
    cluster.begin(names.decisions)
    decision = Decision.read(cluster.offsets, names)
    if decision is not None:
        _carry_out(cluster, decision)
    cluster.fence(cluster.open_names(names.transactions()))


def abort_unknown(cluster: Cluster, prefix: str, checkpoint: str) -> None:
    """The same for a batch of which no task has said to which query it belongs."""
    found = {Names.of_transaction(prefix, checkpoint, each) for each in cluster.open_names(f"{prefix}-")}
    for names in found:
        if names is not None:
            abort_batch(cluster, names)


def _carry_out(cluster: Cluster, decision: Decision) -> None:
    """Commit what is decided. Nothing happens to what has ended, or to what its producers have written since."""
    if decision.undecided:
        cluster.end(decision.undecided, committed=True)


def _fence_others(cluster: Cluster, prefix: str, kept: Collection[OpenTransaction]) -> None:
    """Abort what is open under names of the job or the query and does not count."""
    others = cluster.open_names(prefix) - {each.transactional_id for each in kept}
    if others:
        cluster.fence(others)


def _check_open(cluster: Cluster, prefix: str, wanted: Collection[OpenTransaction]) -> None:
    """Make sure that all can be committed, before the first one is, and that nothing else is open."""
    _fence_others(cluster, prefix, wanted)
    # A name alone does not say it: another attempt may have taken it over.
    if wanted and not cluster.are_open(wanted):
        cluster.fence(cluster.open_names(prefix))
        raise TransactionAbortedError(
            "a task's transaction is no longer open, so nothing is committed. Either another application runs with "
            "the same checkpoint and has aborted it: end one of the two. Or it was open for longer than "
            "kafka.transaction.timeout.ms, after which brokers abort it: raise that, or make the batch smaller"
        )


def _commit(cluster: Cluster, wanted: Collection[OpenTransaction], consequence: str) -> None:
    refused = cluster.end(wanted, committed=True) if wanted else {}
    if refused:
        _, why = next(iter(refused.items()))
        raise TransactionAbortedError(
            f"brokers have aborted the transactions of {len(refused)} of {len(wanted)} tasks; {consequence}"
        ) from why


def _tell(batch: int, names: Names, is_whole: bool, *, others: bool) -> None:
    if others:
        _log.warning(
            "batch %d of query %s was committed before, and this time its rows are others; those that were committed "
            "first are kept",
            batch,
            names.query,
        )
    elif is_whole:
        _log.info("batch %d of query %s was committed before, and is not written again", batch, names.query)
    else:
        _log.info("batch %d of query %s was partly committed; what is missing is", batch, names.query)
