"""What the driver commits, aborts and refuses. The cluster is a fake that keeps transactions and offsets in dicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from kadence.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortedError,
    for_code,
)
from kadence.protocol import error_codes
from kadence.types import OffsetAndMetadata, OpenTransaction, TopicPartition
from kadence_spark.sink.decision import Decision, Names, Slice, marker
from kadence_spark.sink.ending import (
    Before,
    abort_batch,
    abort_job,
    abort_unknown,
    commit_batch,
    commit_job,
    look_back,
)

NAMES = Names("team", "f" * 36, "c0ffee")
GONE = KafkaTimeoutError("the driver dies here")


class FakeCluster:
    """Transactions: open, committed or aborted; offsets of groups, among them those that a commit brings in.

    ``dies_after``: how many transactions are ended before the connection is lost. ``lingers``: groups learn that one
    was committed only when its id is fenced, as after a restart of their brokers.
    """

    def __init__(self) -> None:
        self.state: dict[OpenTransaction, str] = {}
        self.markers: dict[OpenTransaction, tuple[str, TopicPartition, OffsetAndMetadata]] = {}
        self.groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.dies_after: int | None = None
        self.is_listed = True
        self.lingers = False
        self.pending: list[OpenTransaction] = []

    def written(
        self, transaction: OpenTransaction, group: str, at: TopicPartition, mark: OffsetAndMetadata
    ) -> None:
        self.fence([transaction.transactional_id])  # whoever takes a name aborts what is open under it
        self.state[transaction] = "open"
        self.markers[transaction] = (group, at, mark)

    def committed(self) -> set[str]:
        return {each.transactional_id for each, state in self.state.items() if state == "committed"}

    def time_out(self) -> None:
        for each in self._open(""):
            self.state[each] = "aborted"

    def _open(self, prefix: str) -> list[OpenTransaction]:
        return [
            each
            for each, state in self.state.items()
            if state == "open" and each.transactional_id.startswith(prefix)
        ]

    def open_names(self, prefix: str) -> set[str]:
        return {each.transactional_id for each in self._open(prefix)} if self.is_listed else set()

    def are_open(self, transactions: Collection[OpenTransaction]) -> bool:
        return all(self.state.get(each) == "open" for each in transactions)

    def end(
        self, transactions: Collection[OpenTransaction], *, committed: bool
    ) -> dict[OpenTransaction, KafkaError]:
        refused: dict[OpenTransaction, KafkaError] = {}
        for each in transactions:
            if self.dies_after == 0:
                raise GONE
            if self.dies_after is not None:
                self.dies_after -= 1
            wanted = "committed" if committed else "aborted"
            if self.state.get(each) == "open":
                self.state[each] = wanted
                if committed:
                    self.pending.append(each)
                    if not self.lingers:
                        self._complete(each.transactional_id)
            elif self.state.get(each) != wanted:
                refused[each] = for_code(error_codes.PRODUCER_FENCED)
        return refused

    def _complete(self, name: str) -> None:
        for each in [each for each in self.pending if each.transactional_id == name]:
            self.pending.remove(each)
            group, at, mark = self.markers[each]
            self.groups.setdefault(group, {})[at] = mark

    def fence(self, names: Iterable[str]) -> None:
        for name in names:
            self._complete(name)
            for each in self._open(name):
                if each.transactional_id == name:
                    self.state[each] = "aborted"

    def offsets(
        self, group: str, *, stable_at: TopicPartition | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        assert stable_at is None or not [each for each in self._open("") if self.markers[each][0] == group], (
            "it would wait for ever"
        )
        return self.groups.get(group, {})

    def begin(self, name: str) -> None:
        assert not name.startswith(NAMES.transactions()), (
            "whoever fences the tasks' would fence the driver's own"
        )

    def commit_offsets(self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        for group, kept in offsets.items():
            self.groups.setdefault(group, {}).update(kept)


class Run:
    """One run of the query on the cluster: what its tasks and its driver do."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._ids = 100 * len(cluster.state)

    def tasks(self, batch: int, *digests: str, attempt: int = 0) -> tuple[Before, list[Slice]]:
        """Each task looks back and writes; an empty digest stands for no rows."""
        before = look_back(self.cluster, NAMES, self.name, batch)
        slices = []
        for number, digest in enumerate(digests):
            each = Slice(number, len(digest), digest, "out" if digest else "")
            if digest:
                self._ids += 1
                open_one = OpenTransaction(
                    NAMES.transaction(before.side, number, attempt), self._ids, 0, True
                )
                mark = OffsetAndMetadata(batch, metadata=marker(self.name, each))
                group, at = NAMES.marker(before.side, number), TopicPartition("out", 0)
                self.cluster.written(open_one, group, at, mark)
                each = replace(each, transaction=open_one)
            slices.append(each)
        return before, slices

    def batch(self, batch: int, *digests: str) -> None:
        before, slices = self.tasks(batch, *digests)
        commit_batch(self.cluster, NAMES, self.name, batch, before, slices)

    def dies_in(self, batch: int, *digests: str, after: int) -> None:
        before, slices = self.tasks(batch, *digests)
        self.cluster.dies_after = after
        with pytest.raises(KafkaTimeoutError):
            commit_batch(self.cluster, NAMES, self.name, batch, before, slices)
        self.cluster.dies_after = None


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def rows_of(cluster: FakeCluster) -> list[str]:
    """The digests of what is visible: a committed transaction's marker says them."""
    return sorted(
        cluster.markers[each][2].metadata.split()[-1]
        for each, state in cluster.state.items()
        if state == "committed"
    )


# ---------------------------------------------------------------- a batch job


def test_a_job_commits_what_spark_accepted_and_nothing_else(cluster: FakeCluster) -> None:
    mine = [
        OpenTransaction(f"job-{task}", number, 0, True) for number, task in enumerate(["0-0", "1-1", "1-0"])
    ]
    others = OpenTransaction("jobs-0-0", 9, 0, True)
    for each in [*mine, others]:
        cluster.written(each, "g", TopicPartition("t", 0), OffsetAndMetadata(0))
    commit_job(cluster, "job-", mine[:2])
    assert cluster.committed() == {"job-0-0", "job-1-1"}
    assert cluster.state[mine[2]] == "aborted", "the slower attempt, or one that failed"
    assert cluster.state[others] == "open"


def test_nothing_of_a_job_is_committed_if_something_cannot_be(cluster: FakeCluster) -> None:
    mine = [OpenTransaction(f"job-{task}", task, 0, True) for task in range(3)]
    for each in mine:
        cluster.written(each, "g", TopicPartition("t", 0), OffsetAndMetadata(0))
    cluster.state[mine[1]] = "aborted"
    with pytest.raises(
        TransactionAbortedError,
        match=r"nothing is committed\. .*same checkpoint.* kafka.transaction.timeout.ms",
    ):
        commit_job(cluster, "job-", mine)
    assert set(cluster.state.values()) == {"aborted"}


def test_a_failed_job_leaves_nothing_open(cluster: FakeCluster) -> None:
    cluster.written(OpenTransaction("job-0-0", 1, 0, True), "g", TopicPartition("t", 0), OffsetAndMetadata(0))
    abort_job(cluster, "job-")
    assert set(cluster.state.values()) == {"aborted"}


def test_a_transaction_that_is_not_listed_is_looked_at(cluster: FakeCluster) -> None:
    """Its coordinator may have been on the move."""
    mine = OpenTransaction("job-0-0", 1, 0, True)
    cluster.written(mine, "g", TopicPartition("t", 0), OffsetAndMetadata(0))
    cluster.is_listed = False
    commit_job(cluster, "job-", [mine])
    assert cluster.committed() == {"job-0-0"}


# ---------------------------------------------------------------- a stream


def test_batches_follow_each_other_in_a_run_and_in_the_next(cluster: FakeCluster) -> None:
    first = Run(cluster, "first")
    first.batch(0, "a", "b")
    first.batch(1, "", "c")
    first.batch(2, "", "")
    second = Run(cluster, "second")
    second.batch(3, "d")
    second.batch(4, "e", "f")
    assert rows_of(cluster) == ["a", "b", "c", "d", "e", "f"]
    assert "open" not in cluster.state.values()


def test_a_batch_that_was_committed_is_not_written_again_whatever_its_rows(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver died between the sink's commit and Spark's."""
    Run(cluster, "first").batch(5, "a", "b")
    Run(cluster, "second").batch(5, "a", "b")
    Run(cluster, "third").batch(5, "x")
    assert rows_of(cluster) == ["a", "b"]
    assert "open" not in cluster.state.values()
    assert "was committed before, and this time its rows are others" in caplog.text


@pytest.mark.parametrize("after", [0, 1, 2])
def test_what_is_decided_is_carried_out_by_the_next_run(cluster: FakeCluster, after: int) -> None:
    """Even if the plan has other rows this time."""
    first = Run(cluster, "first")
    first.batch(0, "z")
    first.dies_in(1, "a", "b", "c", after=after)
    Run(cluster, "second").tasks(1)
    assert rows_of(cluster) == ["a", "b", "c", "z"]
    Run(cluster, "third").batch(1, "other")
    Run(cluster, "fourth").batch(2, "d")
    assert rows_of(cluster) == ["a", "b", "c", "d", "z"]


def test_nothing_counts_of_a_driver_that_dies_before_it_decides(cluster: FakeCluster) -> None:
    Run(cluster, "first").batch(0, "z")
    Run(cluster, "second").tasks(1, "a", "b")
    Run(cluster, "third").tasks(1, "a", "b", attempt=1)
    Run(cluster, "fourth").batch(1, "a", "b")
    assert rows_of(cluster) == ["a", "b", "z"]
    assert "open" not in cluster.state.values()


def test_slices_that_were_aborted_meanwhile_are_written_again_and_only_they(cluster: FakeCluster) -> None:
    """The driver was away for longer than transaction.timeout.ms; twice."""
    Run(cluster, "first").dies_in(1, "a", "", "b", "c", after=1)
    cluster.time_out()
    assert rows_of(cluster) == ["a"]
    Run(cluster, "second").dies_in(1, "a", "", "b", "c", after=1)
    cluster.time_out()
    assert rows_of(cluster) == ["a", "b"]
    Run(cluster, "third").batch(1, "a", "", "b", "c")
    assert rows_of(cluster) == ["a", "b", "c"]
    Run(cluster, "fourth").batch(1, "a", "", "b", "c")
    Run(cluster, "fourth").batch(2, "d")
    assert rows_of(cluster) == ["a", "b", "c", "d"]
    assert "open" not in cluster.state.values()


def test_a_slice_whose_end_is_still_on_its_way_to_its_group_is_not_written_again(
    cluster: FakeCluster,
) -> None:
    """The broker of the group is started again, and the group has never had an offset of the partition."""
    Run(cluster, "first").dies_in(1, "a", "b", after=1)
    cluster.lingers, cluster.dies_after = True, None
    Run(cluster, "second").batch(1, "a", "b")
    assert rows_of(cluster) == ["a", "b"]


def test_all_slices_that_were_aborted_are_written_again_whatever_their_rows(cluster: FakeCluster) -> None:
    Run(cluster, "first").dies_in(1, "a", "b", after=0)
    cluster.time_out()
    Run(cluster, "second").batch(1, "x", "y", "z")
    assert rows_of(cluster) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("again", "differs"),
    [
        (("x", "b"), "task 0 has other rows this time"),
        (("b", "a"), "task 0 has other rows this time"),
        (("a",), "it had 2 tasks, and has 1 this time"),
        (("a", "b", ""), "it had 2 tasks, and has 3 this time"),
    ],
)
def test_a_batch_that_is_partly_committed_and_has_other_rows_fails_plainly(
    cluster: FakeCluster, again: tuple[str, ...], differs: str
) -> None:
    Run(cluster, "first").dies_in(7, "a", "b", after=1)
    cluster.time_out()
    for name in ("second", "third"):
        with pytest.raises(
            IllegalStateError, match=f"batch 7 is partly committed: .* 1 of its 2 tasks .* because {differs}"
        ):
            Run(cluster, name).batch(7, *again)
    assert rows_of(cluster) == ["a"]
    assert "open" not in cluster.state.values()
    Run(cluster, "fourth").batch(7, "a", "b")
    assert rows_of(cluster) == ["a", "b"]


def test_a_batch_that_is_partly_committed_is_written_again_whole_without_its_group(
    cluster: FakeCluster,
) -> None:
    Run(cluster, "first").dies_in(7, "a", "b", after=1)
    cluster.time_out()
    with pytest.raises(
        IllegalStateError,
        match=r"have the whole batch written again, and what is committed of it twice: delete the group",
    ) as refused:
        Run(cluster, "second").batch(7, "a", "x", "y")
    del cluster.groups[str(refused.value).split()[-1]]
    Run(cluster, "third").batch(7, "a", "x", "y")
    assert rows_of(cluster) == ["a", "a", "x", "y"]
    Run(cluster, "fourth").batch(8, "z")
    assert rows_of(cluster) == ["a", "a", "x", "y", "z"]


def test_of_two_applications_with_one_checkpoint_the_one_that_stays_commits(cluster: FakeCluster) -> None:
    """It decides while the other one is about to commit."""
    before, slices = Run(cluster, "other").tasks(1, "a", "b")
    stays, are_open = Run(cluster, "stays"), cluster.are_open

    def after_the_other(transactions: Collection[OpenTransaction]) -> bool:
        cluster.are_open = are_open  # type: ignore[method-assign]
        stays.batch(1, "a", "b")
        return are_open(transactions)

    cluster.are_open = after_the_other  # type: ignore[method-assign]
    with pytest.raises(TransactionAbortedError, match=r"with the same checkpoint .*: end one of the two"):
        commit_batch(cluster, NAMES, "other", 1, before, slices)
    stays.batch(2, "c")
    assert rows_of(cluster) == ["a", "b", "c"]
    assert "open" not in cluster.state.values()


def test_an_old_checkpoint_is_refused(cluster: FakeCluster) -> None:
    Run(cluster, "first").batch(5, "a")
    with pytest.raises(
        IllegalStateError, match=r"the checkpoint, or txnVersion, is older .* delete the group team-f+"
    ) as refused:
        Run(cluster, "second").tasks(4)
    # As it says: then they are written again.
    del cluster.groups[str(refused.value).split()[-1]]
    Run(cluster, "third").batch(4, "a")
    assert rows_of(cluster) == ["a", "a"]


def test_an_abort_after_the_decision_carries_it_out_and_aborts_the_rest(cluster: FakeCluster) -> None:
    """Spark calls abort when commit has failed."""
    run = Run(cluster, "first")
    loser = run.tasks(1, "a", attempt=9)[1][0].transaction
    assert loser is not None
    run.dies_in(1, "a", "b", after=1)
    cluster.state[loser] = "open"
    abort_batch(cluster, NAMES)
    assert cluster.state[loser] == "aborted"
    assert rows_of(cluster) == ["a", "b"]
    Run(cluster, "second").batch(1, "a", "b")
    assert rows_of(cluster) == ["a", "b"]


def test_an_abort_without_a_task_that_has_finished_finds_what_is_open_by_the_checkpoint(
    cluster: FakeCluster,
) -> None:
    run = Run(cluster, "first")
    run.batch(0, "z")
    run.tasks(1, "a", "b")
    others = [OpenTransaction(name, 1, 0, True) for name in ("team-x", "team-" + "e" * 36 + "-0-other-0-0")]
    for each in others:
        cluster.written(each, "g", TopicPartition("t", 0), OffsetAndMetadata(0))
    abort_unknown(cluster, "team", "c0ffee")
    assert [each for each, state in cluster.state.items() if state == "open"] == others
    assert rows_of(cluster) == ["z"]


def test_an_abort_before_the_decision_aborts_all(cluster: FakeCluster) -> None:
    run = Run(cluster, "first")
    run.batch(0, "z")
    run.tasks(1, "a", "b")
    abort_batch(cluster, NAMES)
    assert "open" not in cluster.state.values()
    assert rows_of(cluster) == ["z"]


def test_a_transaction_that_is_aborted_in_the_last_moment_is_told(cluster: FakeCluster) -> None:
    run = Run(cluster, "first")
    before, slices = run.tasks(1, "a", "b")
    keep = cluster.commit_offsets

    def aborts(offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        keep(offsets)
        assert slices[0].transaction is not None
        cluster.state[slices[0].transaction] = "aborted"

    cluster.commit_offsets = aborts  # type: ignore[method-assign]
    with pytest.raises(
        TransactionAbortedError, match="aborted the transactions of 1 of 2 tasks; started again"
    ):
        commit_batch(cluster, NAMES, "first", 1, before, slices)
    cluster.commit_offsets = keep  # type: ignore[method-assign]
    Run(cluster, "second").batch(1, "a", "b")
    assert rows_of(cluster) == ["a", "b"]


def test_what_another_driver_has_decided_meanwhile_is_not_written_again(cluster: FakeCluster) -> None:
    """Spark stops a query without waiting for its Python: the driver of the run before may still commit."""
    stopped = Run(cluster, "stopped")
    before, slices = stopped.tasks(1, "a", "b")
    other, written = Run(cluster, "next").tasks(1, "a", "", attempt=1)
    commit_batch(cluster, NAMES, "stopped", 1, before, slices)
    with pytest.raises(TransactionAbortedError, match=r"another driver of query f+ was at work"):
        commit_batch(cluster, NAMES, "next", 1, other, written)
    assert rows_of(cluster) == ["a", "b"]
    assert "open" not in cluster.state.values()
    Run(cluster, "third").batch(1, "a", "b")
    assert rows_of(cluster) == ["a", "b"]


def test_a_driver_that_was_overtaken_commits_nothing(cluster: FakeCluster) -> None:
    stopped = Run(cluster, "stopped")
    before, slices = stopped.tasks(1, "a", "b")
    Run(cluster, "next").batch(1, "a", "b")
    with pytest.raises(TransactionAbortedError):
        commit_batch(cluster, NAMES, "stopped", 1, before, slices)
    assert rows_of(cluster) == ["a", "b"]


def test_tasks_that_have_found_different_pasts_are_not_committed_together(cluster: FakeCluster) -> None:
    """The run before has decided between their looks; their markers would be kept in two places."""
    stopped = Run(cluster, "stopped")
    before, slices = stopped.tasks(1, "a", "b")
    run = Run(cluster, "next")
    early = run.tasks(1, "", "", "c")[1]
    commit_batch(cluster, NAMES, "stopped", 1, before, [*slices, replace(early[2], transaction=None)])
    later, written = run.tasks(1, "a", "b", "")
    early_open = OpenTransaction(NAMES.transaction(0, 2, 0), 999, 0, True)
    mark = OffsetAndMetadata(1, metadata=marker("next", early[2]))
    cluster.written(early_open, NAMES.marker(0, 2), TopicPartition("out", 0), mark)
    mixed = [*written[:2], replace(early[2], transaction=early_open)]
    with pytest.raises(TransactionAbortedError, match="another driver"):
        commit_batch(cluster, NAMES, "next", 1, later, mixed)
    assert rows_of(cluster) == ["a", "b"]
    assert "open" not in cluster.state.values()


def test_a_name_that_another_attempt_has_taken_over_is_not_enough(cluster: FakeCluster) -> None:
    """A stage that Spark repeats numbers its attempts from 0 again."""
    mine = [OpenTransaction(f"job-{task}-0", task, 0, True) for task in range(2)]
    for each in [*mine, replace(mine[1], epoch=1)]:
        cluster.written(each, "g", TopicPartition("t", 0), OffsetAndMetadata(0))
    with pytest.raises(TransactionAbortedError, match="nothing is committed"):
        commit_job(cluster, "job-", mine)
    assert set(cluster.state.values()) == {"aborted"}


# ---------------------------------------------------------------- the decision as offsets


def test_a_decision_of_many_tasks_is_spread_over_many_offsets(cluster: FakeCluster) -> None:
    run = Run(cluster, "first")
    digests = [f"{number:016x}" if number % 7 else "" for number in range(500)]
    before, slices = run.tasks(3, *digests)
    commit_batch(cluster, NAMES, "first", 3, before, slices)
    kept = [at for group in cluster.groups for at in cluster.groups[group].values()]
    assert len([group for group in cluster.groups if "-more-" in group]) == 4
    assert max(len(each.metadata) for each in kept) < 4096
    found = Decision.read(cluster.offsets, NAMES)
    assert found is not None
    assert [replace(each, topic="") for each in found.slices] == [replace(each, topic="") for each in slices]
    run.batch(4, "a")
    newest = Decision.read(cluster.offsets, NAMES)
    assert newest is not None
    assert (newest.batch, len(newest.slices)) == (4, 1)


@pytest.mark.parametrize("is_first", [True, False])
def test_parts_of_a_decision_that_are_seen_late_are_waited_for(cluster: FakeCluster, is_first: bool) -> None:
    """The offsets of one transaction become visible group by group; one that is a group's first is not there before."""
    run = Run(cluster, "first")
    digests = [f"{number:016x}" for number in range(200)]
    run.batch(3, *digests)
    late = NAMES.more_decisions(0, 1)

    def offsets(
        group: str, *, stable_at: TopicPartition | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        found = cluster.offsets(group)
        if group != late or stable_at is not None:
            return found
        return {} if is_first else {tp: OffsetAndMetadata(2, metadata="[]") for tp in found}

    seen = Decision.read(offsets, NAMES)
    assert seen is not None
    assert (seen.batch, len(seen.slices)) == (3, 200)


HEAD = '{"format":%d,"run":"r","side":0,"checkpoint":"c","more":%d,"slices":[]}'
AT = TopicPartition("t", 0)


@pytest.mark.parametrize(
    "kept",
    [
        {NAMES.decisions: OffsetAndMetadata(5)},
        {NAMES.decisions: OffsetAndMetadata(5, metadata="[" * 4_000)},
        {NAMES.decisions: OffsetAndMetadata(5, metadata=HEAD % (2, 0))},
        {NAMES.decisions: OffsetAndMetadata(5, metadata=HEAD % (1, 1))},
        {
            NAMES.decisions: OffsetAndMetadata(5, metadata=HEAD % (1, 1)),
            NAMES.more_decisions(0, 1): OffsetAndMetadata(4, metadata='[[0,1,"a"]]'),
        },
    ],
)
def test_offsets_that_the_sink_has_not_written_are_refused(kept: dict[str, OffsetAndMetadata]) -> None:
    def offsets(
        group: str, *, stable_at: TopicPartition | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {AT: kept[group]} if group in kept else {}

    with pytest.raises(
        IllegalStateError, match=r"offsets of group 'team-f+' are not what the sink has written"
    ):
        Decision.read(offsets, NAMES)
