"""One share consumer's application side, without a way to wait: subscribing, acknowledging, the end (KIP-932).

Application side. Its parts are made in `kadence.share.assembly`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from kadence.client.engine import Engine
from kadence.client.waits import Waits
from kadence.clock import Clock
from kadence.config import ShareConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.client_core import Chosen, ClientCore
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.processing import Stalls
from kadence.errors import KafkaError
from kadence.share.acknowledgements import TopicIdPartition
from kadence.share.application.buffer import Buffer
from kadence.share.application.holding import Holding
from kadence.share.application.polls import SharePolls
from kadence.share.application.results import Results
from kadence.share.events import Acknowledge, Sending
from kadence.share.share_state import ShareState
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import DeadLetters, LetterProducers
    from kadence.work.driver import Insides

__all__ = ["ShareCore"]


class ShareCore(ClientCore):
    """One share consumer's application side.

    Attributes:
        holding, buffer, polls, results: parts of it.
    """

    NOTHING_CHOSEN: ClassVar = "it has no subscription"
    FREE_CALLS: ClassVar = "stop, wakeup, close and calls that read its state (metrics, health, …)"
    CUT_SHORT: ClassVar = "the records that it holds are released"

    def __init__(
        self,
        config: ShareConsumerConfig,
        shared_state: ShareState,
        engine: Engine,
        clock: Clock,
        *,
        chosen: Chosen,
        exchange: Exchange,
        stalls: Stalls,
        holding: Holding,
        buffer: Buffer,
        polls: SharePolls,
        results: Results,
        dead_letters: DeadLetters | None,
    ) -> None:
        super().__init__(
            shared_state,
            engine,
            clock,
            chosen=chosen,
            exchange=exchange,
            stalls=stalls,
            dead_letters=dead_letters,
            request_timeout_ms=config.request_timeout_ms,
            processing_timeout_ms=config.processing_timeout_ms,
        )
        self.config = config
        self.holding = holding
        self.buffer = buffer
        self.polls = polls
        self.results = results
        self._shared_state = shared_state
        self.is_in_callback = results.is_inside
        self.is_taking = lambda: polls.is_taking
        self.is_inside_elsewhere = polls.steps.is_inside_elsewhere
        self.has_deserializers = buffer.decoding is not None
        self.stop = self._stop
        exchange.on_event = results.take

    def rest(self) -> None:
        """No poll follows for now, so nothing is fetched."""
        self._shared_state.rest()

    def _stop(self) -> None:
        self.rest()
        self.exchange.stop()

    # ------------------------------------------------------------ what is read

    def subscribe(self, topics: frozenset[str], deadline: int) -> Waits[None]:
        """Replace the subscription. What was fetched of other topics is released."""
        self.forgive()
        chosen = self.chosen
        chosen.times += 1
        chosen.subscribed = topics
        self._shared_state.wants_polled = True
        self._shared_state.attention.up = True
        self.polls.end_steps()
        self.buffer.release_all_but(topics)
        self.polls.send_said()
        yield from self.hand_over(m.Subscribe, deadline, topics=topics, pattern=None, has_listener=False)

    # ------------------------------------------------------------ acknowledging

    def commit(self, deadline: int) -> Waits[dict[TopicPartition, KafkaError | None]]:
        """Send what is said, and wait for what becomes of it, and of what was sent before."""
        self.exchange.take_background_events()
        yield from self.results.run()
        self.polls.end_steps()
        self.holding.accept_returned()
        self.exchange.ready()
        # First it is sent: a wakeup only ends the wait.
        call_id = self.exchange.expect()
        self.polls.send(call_id, deadline, Sending.SYNC)
        answer = yield from self.exchange.finish(Acknowledge, call_id, deadline)
        yield from self.results.run()
        found: dict[TopicPartition, KafkaError | None] = {}
        for partition, error in cast("dict[TopicIdPartition, KafkaError | None]", answer).items():
            # Of a topic that was made anew there are two of one name.
            found[partition.topic_partition] = found.get(partition.topic_partition) or error
        return found

    def commit_async(self) -> Waits[None]:
        """Send what is said."""
        self.exchange.take_background_events()
        yield from self.results.run()
        self.polls.end_steps()
        self.holding.accept_returned()
        self.polls.send_said(Sending.ASYNC)

    def inside(self, run: Callable[[Waits[Any]], Any], producers: LetterProducers, aside: Aside) -> Insides:
        # Most consumers do not need it.
        from kadence.share.application.inside import ShareInside

        self.results.refuse_inside("process()")
        # It has what a queue needs of an inside: no positions, and no commits of them.
        return cast("Insides", ShareInside(self, run, producers, aside))

    def wall_offset_ms(self) -> int:
        """What makes ms since 1970 of the clock's time."""
        return self._shared_state.wall_offset_ms()

    # ------------------------------------------------------------ the end

    def _before_unsubscribing(self, deadline: int) -> Waits[None]:
        self.polls.end_steps()
        self.buffer.release_all_but(frozenset())
        self.polls.send_said(Sending.ASYNC, deadline)
        yield from ()

    def _before_closing(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        self._shared_state.rest()
        decoding = self.buffer.decoding
        if decoding is not None:
            until = self._half_way(deadline)
            while decoding.awaits_letters and self.clock.now_ms() < until:
                decoding.settle_letters()
                if decoding.awaits_letters:
                    yield until
            decoding.settle_letters()
        # What nothing is said of, the end of the sessions releases.
        self.polls.send_said(Sending.ASYNC, deadline)

    def _serving_until(self, deadline: int) -> Callable[[], Waits[None]]:
        return self.results.run

    def _run_callbacks(self) -> Waits[None]:
        return self.results.run()

    def _forget(self) -> None:
        """Nothing to forget: what polls returned is held until it is acknowledged."""

    def _drop(self) -> None:
        self.buffer.drop_all()
        self.holding.forget()
