"""Ends the transactions of the tasks, on the driver, at the end of a job or of a stream's batch.

Tasks do not commit. Spark's driver knows which attempt of each task counts, and only those are committed; all other
open transactions of the job or the query are fenced, which aborts them, so that readers do not wait for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kadence.errors import IllegalStateError, KafkaError, TransactionAbortedError
from kadence.logs import logger
from kadence.types import OffsetAndMetadata, OpenTransaction, TopicPartition
from kadence_spark.sink.decision import Decision, Names, Slice, judged

__all__ = [
    "Before",
    "Coordinators",
    "abort_batch",
    "abort_job",
    "abort_unknown",
    "commit_batch",
    "commit_job",
    "look_back",
]

_log = logger("kadence.spark")


class Coordinators(Protocol):
    """The coordinators of transactions and of groups. Any call raises `KafkaError` when it cannot be made."""

    def open_names(self, prefix: str) -> set[str]:
        """Transactional ids with this prefix and an open transaction."""

    def are_open(self, transactions: Collection[OpenTransaction]) -> bool:
        """Whether all of these are open."""

    def end(
        self, transactions: Collection[OpenTransaction], *, committed: bool
    ) -> dict[OpenTransaction, KafkaError]:
        """Commit or abort. Returns those that had ended in another way before, with the reason."""

    def fence(self, names: Iterable[str]) -> None:
        """Abort open transactions of these ids, and fence their producers.

        Transactions that are being ended have ended when this returns: all their records are visible.
        """

    def offsets(
        self, group: str, *, stable_at: TopicPartition | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """All offsets of a group; or that of one partition, when no transaction has a pending one."""

    def begin(self, name: str) -> None:
        """Begin a transaction of the caller's own. It fences earlier producers of this id."""

    def commit_offsets(self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        """Commit these offsets to groups, in the transaction that was begun, which this commits.

        Raises:
            KafkaError: for example, another driver has begun one with its id since; then no offset is committed.
        """


def commit_job(cluster: Coordinators, prefix: str, accepted: Iterable[OpenTransaction]) -> None:
    """Commit the transactions of a batch job.

    Args:
        prefix: of the job's transactional ids. accepted: the transactions of tasks that Spark has accepted.

    Raises:
        TransactionAbortedError: brokers have aborted some; the message states whether others are committed.
    """
    counted = list(accepted)
    _check_open(cluster, prefix, counted)
    _commit(cluster, counted, "the rows of the others are committed")


def abort_job(cluster: Coordinators, prefix: str) -> None:
    """Abort the open transactions of a batch job."""
    cluster.fence(cluster.open_names(prefix))


@dataclass(frozen=True, slots=True)
class Before:
    """A run's findings about earlier runs.

    Attributes:
        side: that of this run. repeats: the batch that another run has decided, and that Spark repeats.
    """

    side: int
    repeats: int | None


def look_back(cluster: Coordinators, names: Names, run: str, batch: int) -> Before:
    """End the transactions that earlier runs have left, before a worker's first write in a run.

    Raises:
        IllegalStateError: the checkpoint is older than the sink's last committed batch.
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
    cluster: Coordinators, names: Names, run: str, batch: int, before: Before, slices: Collection[Slice]
) -> None:
    """Commit the transactions of a stream's batch, unless it was committed before.

    Raises:
        IllegalStateError: the batch is partly committed, and the tasks have other rows this time.
        TransactionAbortedError: brokers have aborted a task's transaction, or another driver of the query was running.
            The query can be started again.
    """
    written = [each.transaction for each in slices if each.transaction is not None]
    # From here on no other driver can commit a decision, unless it begins a transaction, too, which fences this one.
    cluster.begin(names.decisions)
    # Also transactions that the driver of another run wants to commit. Its decision has the committed ones.
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
        # The groups may not have seen the end of some transactions yet. A group does not report a pending offset if it
        # is its first one, so waiting for stable offsets is not enough.
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
    """Whether the tasks knew the decision: Spark does not wait for a query's Python when it stops the query."""
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


def abort_batch(cluster: Coordinators, names: Names) -> None:
    """Abort the open transactions of a stream's batch, unless the decision is to commit them."""
    # This also resolves whether a decision that was being written is committed.
    cluster.begin(names.decisions)
    decision = Decision.read(cluster.offsets, names)
    if decision is not None:
        _carry_out(cluster, decision)
    cluster.fence(cluster.open_names(names.transactions()))


def abort_unknown(cluster: Coordinators, prefix: str, checkpoint: str) -> None:
    """The same for a batch of which no task has reported its query."""
    found = {Names.of_transaction(prefix, checkpoint, each) for each in cluster.open_names(f"{prefix}-")}
    for names in found:
        if names is not None:
            abort_batch(cluster, names)


def _carry_out(cluster: Coordinators, decision: Decision) -> None:
    """Commit the decided transactions. Ended ones, and later ones of their producers, are not affected."""
    if decision.undecided:
        cluster.end(decision.undecided, committed=True)


def _fence_others(cluster: Coordinators, prefix: str, kept: Collection[OpenTransaction]) -> None:
    """Abort open transactions of the job or the query that do not count."""
    others = cluster.open_names(prefix) - {each.transactional_id for each in kept}
    if others:
        cluster.fence(others)


def _check_open(cluster: Coordinators, prefix: str, wanted: Collection[OpenTransaction]) -> None:
    """Check, before the first commit, that all can be committed, and abort all other open transactions."""
    _fence_others(cluster, prefix, wanted)
    # The id alone is not enough: another attempt may use it now.
    if wanted and not cluster.are_open(wanted):
        cluster.fence(cluster.open_names(prefix))
        raise TransactionAbortedError(
            "a task's transaction is no longer open, so nothing is committed. Either another application runs with "
            "the same checkpoint and has aborted it: end one of the two. Or it was open for longer than "
            "kafka.transaction.timeout.ms, after which brokers abort it: raise that, or make the batch smaller"
        )


def _commit(cluster: Coordinators, wanted: Collection[OpenTransaction], consequence: str) -> None:
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
