"""`AsyncConsumer`: the public API for asyncio. The same core as `Consumer`, on the loop's own thread (G1)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kadence.clock import FOREVER, Seconds, SystemClock, add_ms, to_ms
from kadence.config import ConsumerConfig, generated_client_id
from kadence.consumer.arguments import Offsets
from kadence.consumer.async_shell import AsyncShell
from kadence.consumer.border.lateness import NetworkLateness
from kadence.consumer.border.messages import Rebalance
from kadence.consumer.border.reasons import NotFetched
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.calls import EARLIEST, LATEST, Calls, Partitions, Topics
from kadence.consumer.consumer import Engines
from kadence.consumer.core import CommitCallback, Core, Waits
from kadence.consumer.dead_letters import Outboxes
from kadence.consumer.metrics import catalogue
from kadence.consumer.records import Records
from kadence.consumer.shell import abandoned
from kadence.consumer.stall import Stall
from kadence.metrics import MetricName
from kadence.records import Record
from kadence.types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AsyncConsumer"]

T = TypeVar("T")

_AT_A_WAIT = (Exception, asyncio.CancelledError)
"""What ends a poll before it has taken anything: a cancelled task notices at an await, and between taking and returning
there is none. Anything else (Ctrl-C on a bare loop) may come anywhere.
"""


class AsyncConsumer:
    """`Consumer` for asyncio: the same calls, awaited. Made on a running event loop, and belongs to it.

    Heartbeats and fetches happen on a network thread, so a loop that something blocks loses no membership as
    long as max.poll.interval.ms; there is no thread pool, and no call blocks the loop. Rebalance callbacks and
    commit callbacks may be coroutine functions. One task polls; others may commit, seek or close meanwhile.
    Cancelling an await loses no record, and commits nothing that was not returned.

    Each method does what the one of the same name in `Consumer` does, and raises the same.
    """

    _engines: Engines
    _outboxes: Outboxes

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        parsed = ConsumerConfig.parse(config, **settings)
        self._config = replace(parsed, client_id=parsed.client_id or generated_client_id("consumer"))
        clock = SystemClock()
        border, engine = type(self)._engines(self._config)
        self._core = Core(self._config, border, engine, clock, type(self)._outboxes)
        self._finalizer = weakref.finalize(self, abandoned, "AsyncConsumer", border, engine)
        self._calls = Calls(self._config, border, self._core, clock)
        self._shell = AsyncShell(self._core, border, clock)

    # ------------------------------------------------------------ what to read

    async def subscribe(self, topics: Topics, *, listener: RebalanceListener | None = None) -> None:
        """Join the group for these topics; the join starts with the next poll."""
        await self._run(self._calls.subscribe(topics, listener))

    async def assign(self, partitions: Partitions, *, timeout: Seconds | None = None) -> None:
        """Read exactly these partitions, without a group's help."""
        await self._run(self._calls.assign(partitions, timeout))

    async def incremental_assign(
        self,
        partitions: Partitions | Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read these partitions too, beside those given by `assign`."""
        await self._run(self._calls.incremental_assign(partitions, timeout))

    async def incremental_unassign(self, partitions: Partitions, *, timeout: Seconds | None = None) -> None:
        """Stop reading these; the others go on undisturbed."""
        await self._run(self._calls.incremental_unassign(partitions, timeout))

    async def unsubscribe(self, *, timeout: Seconds | None = None) -> None:
        """Leave the group, forget subscription and assignment."""
        await self._run(self._calls.unsubscribe(timeout))

    def subscription(self) -> frozenset[str]:
        """Topics given to `subscribe`."""
        return self._calls.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are this consumer's now."""
        return self._calls.assignment()

    # ------------------------------------------------------------ records

    async def poll(self, timeout: Seconds = 0.0, *, max_records: int | None = None) -> Records:
        """Records, as soon as there are any; empty when ``timeout`` (seconds) passes without."""
        self._shell.enter()
        await self._shell.breathe()
        core = self._core
        proofs = core.proofs
        try:
            with self._shell.polling():
                records = self._calls.poll_buffered(max_records)
                if records is None:
                    records = await self._shell.run(self._calls.poll(timeout, max_records))
            return records
        except _AT_A_WAIT:
            raise
        except BaseException:
            core.put_back(proofs)
            raise

    async def poll_arrow(
        self, timeout: Seconds = 0.0, *, max_records: int | None = None, headers: bool = False
    ) -> pyarrow.Table:
        """As `poll`, as one Arrow table with the columns of Spark's Kafka schema."""
        self._shell.enter()
        await self._shell.breathe()
        core = self._core
        proofs = core.proofs
        try:
            with self._shell.polling():
                return await self._shell.run(self._calls.poll_arrow(timeout, max_records, headers))
        except _AT_A_WAIT:
            raise
        except BaseException:
            core.put_back(proofs)
            raise

    def __aiter__(self) -> Self:
        """Iterate over records for ever; each step is a poll of one."""
        return self

    async def __anext__(self) -> Record:
        while (record := await self._next(FOREVER)) is None:
            pass
        return record

    async def records(self, *, idle_timeout: Seconds | None = None) -> AsyncIterator[Record]:
        """Iterate as over the consumer, and end when nothing came for ``idle_timeout`` seconds (None: never)."""
        ms = to_ms(idle_timeout)
        clock = self._core.clock
        while (record := await self._next(FOREVER if ms is None else add_ms(clock.now_ms(), ms))) is not None:
            yield record

    async def _next(self, deadline: int) -> Record | None:
        """One record, or None at the deadline."""
        core = self._core
        left = deadline
        while True:
            proofs = core.proofs
            if deadline != FOREVER:
                left = max(deadline - core.clock.now_ms(), 0)
            try:
                for record in await self.poll(left / 1000, max_records=1):
                    return record
            except _AT_A_WAIT:
                raise
            except BaseException:
                core.put_back(proofs)
                raise
            if left == 0:
                return None

    # ------------------------------------------------------------ positions

    async def seek(
        self,
        partition: TopicPartition,
        offset: int | OffsetAndMetadata,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read ``partition`` from ``offset`` on."""
        await self._run(self._calls.seek(partition, offset, timeout))

    async def seek_to_beginning(self, partitions: Partitions = (), *, timeout: Seconds | None = None) -> None:
        """Read from the first offset there is. None given: all assigned."""
        await self._run(self._calls.reset(partitions, EARLIEST, timeout))

    async def seek_to_end(self, partitions: Partitions = (), *, timeout: Seconds | None = None) -> None:
        """Read only what comes from now on."""
        await self._run(self._calls.reset(partitions, LATEST, timeout))

    async def position(self, partition: TopicPartition, *, timeout: Seconds | None = None) -> int:
        """The offset of the next record that poll() returns."""
        return await self._run(self._calls.position(partition, timeout))

    def pause(self, partitions: Partitions) -> None:
        """Return nothing of these until `resume`."""
        self._calls.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        """Undo `pause`."""
        self._calls.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that `pause` holds back."""
        return self._calls.paused()

    def not_fetched(self) -> dict[TopicPartition, NotFetched]:
        """Each assigned partition that is not being fetched now, with the one reason and since when."""
        return self._calls.not_fetched()

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end as last heard of."""
        return self._calls.current_lag(partition)

    # ------------------------------------------------------------ commits

    async def commit(self, offsets: Offsets | None = None, *, timeout: Seconds | None = None) -> None:
        """Commit and wait until it is done."""
        await self._run(self._calls.commit(offsets, timeout))

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting; ``callback(offsets, error)``, which may be async, runs inside a later call."""
        self._shell.enter()
        self._calls.commit_async(offsets, callback)

    async def committed(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed for partitions; None where nothing was."""
        return await self._run(self._calls.committed(partitions, timeout))

    # ------------------------------------------------------------ the cluster

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset there is, for each partition."""
        return await self._run(self._calls.edge_offsets(partitions, EARLIEST, timeout))

    async def end_offsets(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The offset the next record will get."""
        return await self._run(self._calls.edge_offsets(partitions, LATEST, timeout))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms since 1970, UTC)."""
        return await self._run(self._calls.offsets_for_times(timestamps, timeout))

    async def partitions_for(self, topic: str, *, timeout: Seconds | None = None) -> list[PartitionInfo]:
        """The partitions of a topic; empty when the cluster does not know it."""
        return await self._run(self._calls.partitions_for(topic, timeout))

    async def list_topics(self, *, timeout: Seconds | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, with their partitions."""
        return await self._run(self._calls.topics(None, timeout))

    # ------------------------------------------------------------ the group

    def group_metadata(self) -> GroupMetadata:
        """This member's identity now, as one value."""
        return self._calls.group_metadata()

    def rebalances(self) -> Sequence[Rebalance]:
        """The last hundred rebalances as this member saw them."""
        return self._calls.rebalances()

    def network_lateness(self) -> NetworkLateness:
        """How late the network thread came to its work: what holds the interpreter delays heartbeats (B9)."""
        return self._calls.network_lateness()

    def stalls(self) -> Sequence[Stall]:
        """The last hundred times that nothing was polled for long (stall.report.share): where, and what was in hand."""
        return self._calls.stalls()

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Make the group rebalance (KIP-568); does nothing but log with KIP-848, where the broker decides."""
        self._shell.enter()
        self._calls.enforce_rebalance(reason)

    def metrics(self) -> Mapping[MetricName, float]:
        """What was measured so far, under the names of Kafka's own client (docs/metrics.md). Any thread, no request."""
        return self._calls.metrics()

    @staticmethod
    def metric_names() -> Sequence[MetricName]:
        """Every name that `metrics` can have, with tags whose values are empty: for what must know them before."""
        return catalogue()

    # ------------------------------------------------------------ the end

    def wakeup(self) -> None:
        """From any thread: make the call under way, or the next one, raise `WakeupError`."""
        self._core.wakeup()

    async def close(self, *, timeout: Seconds | None = None, leave: bool | None = None) -> None:
        """Commit what was returned (if auto-commit is on), leave the group, stop. Idempotent; never hangs (B7)."""
        await self._close(timeout, proved_only=False, leave=leave)

    async def _close(self, timeout: Seconds | None, *, proved_only: bool, leave: bool | None = None) -> None:
        if not self._shell.forked:
            deadline = self._calls.closed_by(timeout)
            await self._shell.run(self._calls.close(deadline, proved_only=proved_only, leave=leave))
        self._finalizer.detach()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # After an exception the records of the last poll may be unprocessed: commit only what was proved.
        await self._close(None, proved_only=kind is not None)

    def __repr__(self) -> str:
        return self._calls.describe("AsyncConsumer")

    async def _run(self, call: Waits[T]) -> T:
        self._shell.enter()
        return await self._shell.run(call)
