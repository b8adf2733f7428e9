"""What `ShareConsumer.process` needs of the share consumer that it drives (KIP-932, H1). Application side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kadence.client.aside import Aside
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, add_ms
from kadence.consumer.application.arguments import is_among
from kadence.consumer.events import TopicMetadata
from kadence.consumer.fetch.dead_letters import LetterProducers
from kadence.consumer.fetch.decoding import decoding_one
from kadence.errors import ConcurrentAccessError, KafkaError
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged
from kadence.types import PartitionInfo, TopicPartition
from kadence.work.desk import Desk
from kadence.work.meters import Meters, Totals
from kadence.work.queue import Outcomes, QueueDesk, QueueTotals
from kadence.work.tracing import Tracing

if TYPE_CHECKING:
    from kadence.share.application.core import ShareCore

__all__ = ["ShareInside"]

_COMMIT_MS: Final = 5_000


class ShareInside:
    """One share consumer's inside, as `kadence.work.driver.Insides` describes it, as far as queues need it.

    Args:
        run: carries a call of the consumer: the result is awaited under asyncio.
        aside: where calls are made that may block.
    """

    listener = None
    is_manual = False
    reads_committed = False
    commit_ms = _COMMIT_MS

    def __init__(
        self,
        core: ShareCore,
        run: Callable[[Waits[Any]], Any],
        producers: LetterProducers,
        aside: Aside,
    ) -> None:
        self.clock: Clock = core.clock
        self.group = core.config.group_id
        self.max_poll_ms = core.config.max_poll_interval_ms
        self.nudge = core.nudge
        self.policy = core.config.deserialization_errors
        # No function of Python's: see `Insides`.
        self.is_stopping: Callable[[], bool] = partial(getattr, core.exchange, "stopping")
        self.aside = aside
        self._core = core
        self._run = run
        self._producers = producers
        self._desk: Desk | None = None
        self.taken: Sequence[tuple[Any, TopicPartition, Sequence[Record[Any, Any]]]] = ()

    @property
    def queue(self) -> ShareInside:
        return self

    @property
    def tracing(self) -> Tracing | None:
        return self._core.tracing

    @property
    def topics(self) -> frozenset[str] | None:
        return self._core.chosen.subscribed

    def subscribes_to(self, topic: str) -> bool:
        return is_among(topic, self._core.chosen.subscribed, None)

    # ------------------------------------------------------------ records and their outcomes

    def poll(self, ms: int, most: int) -> Any:
        return self._run(self._polled(ms, most))

    def _polled(self, ms: int, most: int) -> Waits[None]:
        polls = self._core.polls
        begun = polls.begun
        try:
            chunks = yield from polls.poll(add_ms(self.clock.now_ms(), ms), most, decodes=False)
            self.taken = [(chunk.fetch, chunk.partition, chunk.records) for chunk in chunks]
        except KafkaError:
            raise
        except BaseException:
            # Ctrl-C: nobody knows of what it took, so it would be held for ever.
            try:
                polls.put_back(begun)
            finally:
                # Once more, should it come a second time in the midst of it.
                polls.put_back(begun)
            raise

    def rest(self) -> None:
        """No poll follows: nothing is fetched ahead while handlers that run are waited for."""
        self._core.rest()

    def settle(self, outcomes: Outcomes) -> None:
        """The next poll sends them, or `commit`, which waits for the brokers' answers to what it sends."""
        while outcomes:
            fetch, said = next(iter(outcomes.items()))
            self._core.holding.settle(
                fetch, [Acknowledged(offset, offset, kind) for offset, kind in sorted(said)]
            )
            # Nothing comes between these two, not even Ctrl-C.
            del outcomes[fetch]

    def send(self) -> None:
        self._core.polls.send_said()

    def commit(self, read: Mapping[Any, Any]) -> Any:
        """Send the outcomes that no poll has sent, and wait for the brokers' answers."""
        del read
        return self._run(self._core.commit(self._deadline()))

    # ------------------------------------------------------------ beside them

    def partitions_of(self, topic: str) -> Any:
        return self._run(self._partitions_of(topic))

    def _partitions_of(self, topic: str) -> Waits[list[PartitionInfo] | None]:
        found = yield from self._core.exchange.call_unless_stopped(TopicMetadata, FOREVER, topics=(topic,))
        return None if found is None else found.get(topic, [])

    def listen(self, listener: Any, topics: frozenset[str] | None) -> Any:
        """A queue has no rebalances to listen to."""
        del listener, topics
        return self._run(_nothing())

    def unlisten(self, listener: Any) -> Any:
        """As `listen`."""
        del listener
        return self._run(_nothing())

    def wall_ms(self) -> int:
        return self.clock.now_ms() + self._core.wall_offset_ms()

    def new_decode(self) -> Callable[[Record[Any, Any]], Record[Any, Any]] | None:
        config = self._core.config
        if config.key_deserializer is None and config.value_deserializer is None:
            return None
        return decoding_one(config)

    def new_producer(self, transactional_id: str | None = None) -> Any:
        return self._producers(self._core.config, transactional_id)

    def begin(self, desk: Desk, workers: int) -> None:
        """`process` says what becomes of records from now on.

        Raises:
            ConcurrentAccessError: another call of `process` is under way.
        """
        core = self._core
        if core.polls.is_working:
            raise ConcurrentAccessError("process() of this consumer is under way already")
        work = Meters() if core.work is None else core.work
        work.begin(desk, workers)
        # At once: nobody ends what Ctrl-C kept from beginning.
        core.work, self._desk, core.polls.is_working = work, desk, True

    def end(self, listener: Any, committed: Mapping[Any, Any], *, is_put_back: bool) -> Totals:
        """Polls are as they were before `begin`."""
        del listener, committed, is_put_back
        core = self._core
        core.polls.is_working = False
        core.exchange.nudged = False
        # After Ctrl-C there was no commit.
        core.polls.send_said()
        totals = Totals() if core.work is None else core.work.end()
        desk, self._desk = self._desk, None
        rejected = desk.rejected if isinstance(desk, QueueDesk) else 0
        return QueueTotals(
            totals.done, totals.failed, totals.retried, totals.dead_lettered, totals.already_done, rejected
        )

    def abandon(self) -> None:
        """Release what `process` had, and be as after `end`, if Ctrl-C has kept `process` from that."""
        desk = self._desk
        if not isinstance(desk, QueueDesk) or desk.here.is_left:
            return
        with desk.lock:
            desk.is_ended = desk.is_over = True
            desk.scheduler.look_at_locks(self.clock.now_ms())
            desk.scheduler.release_all(self.taken)
            self.taken = ()
        desk.settle(self.settle)
        self.end(None, {}, is_put_back=True)

    def _deadline(self) -> int:
        return add_ms(self.clock.now_ms(), self._core.config.default_api_timeout_ms)


def _nothing() -> Waits[None]:
    yield from ()
