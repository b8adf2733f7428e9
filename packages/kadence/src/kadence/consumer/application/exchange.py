"""Sends events to the network side, receives its events, and completes the calls that wait. Application side.

A call sends an application event, and its answer comes back as a background event with the same id (C2). Deadlines are
enforced by the reaper on the network thread; here they only bound the wait should that thread be late. Each wait is a
generator (`client.waits`), which looks at the shared state each time it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kadence.client.engine import ended
from kadence.client.grace import Grace
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, add_ms
from kadence.consumer import events as m
from kadence.consumer.client_state import Asked, ClientState
from kadence.errors import ClosedError, KafkaTimeoutError, WakeupError
from kadence.errors.copies import own_copy
from kadence.logs import logger
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["NOT_SENT", "Exchange"]

log = logger("kadence.consumer")

_GRACE_MS = 5_000
"""How much later than a call's deadline the application gives up on the network thread itself."""

NOT_SENT: Final = object()
"""In place of a result: the call has to go to the network thread."""

_SOON_MS = 100
"""How long the application waits for the answer to a request of its own without the network thread. For a slower broker
that has more to do, such as to find out whether it is there at all."""

_SURELY_A_SPIN = 100
"""So many polls after `stop` are those of a loop that does not look whether it shall end."""

_HISTORY = 100
"""Rebalances remembered."""


class Exchange:
    """Sends the application's calls to the network thread, and receives its answers and events.

    Attributes:
        group: this member's identity, as last heard from the network thread. identity: the one that goes with the
            records that polls have returned (C12). rebalances: the last of those that polls have told (C16).
        callbacks: steps of a rebalance that the application must take (C5), each until its end was told.
        failures: errors that no call caused, for the next poll (B6). fatal: one that every call raises.
        woken: `wakeup` was called and nothing has raised it yet. nudged: the poll under way, or the next one, returns
            at once. stopping: `stop` was called: polls return nothing. closing: close() is under way, and has sent what
            is to be sent before. closed: it has ended. is_awaited: another thread closes it as soon as the present call
            has ended.
        has_records: whether anything that was fetched of a partition under a fetch epoch is still to be returned.
        stands: whether an error of a partition is still true.
        on_commit: takes the end of an asynchronous commit. on_event: takes events that only some clients have; one that
            was taken may come once more, after an interruption.
        grace: until when calls may wait once `stop` was called.
        stalled: the stall that was told of and that no poll has ended (B4).
    """

    def __init__(self, client_state: ClientState, clock: Clock, group: GroupMetadata) -> None:
        self.group = self.identity = group
        self.rebalances: list[m.Rebalance] = []
        self.callbacks: list[m.CallbackNeeded] = []
        self.failures: list[m.Failed] = []
        self.fatal: Exception | None = None
        self.woken = False
        self.nudged = False
        self.stopping = False
        self.closing = False
        self.is_awaited = False
        self.closed = False
        self.grace = Grace()
        self.stalled: m.Stalled | None = None
        self.has_records: Callable[[TopicPartition, int], bool] = lambda partition, fetch_epoch: False
        self.stands: Callable[[m.Failed], bool] = lambda failure: True
        self.on_commit: Callable[[m.CommitCompleted], None] = lambda event: None
        self.on_event: Callable[[m.BackgroundEvent], None] = lambda event: None
        self._client_state = client_state
        self._clock = clock
        self._polls_after_stop = 0
        self._ids = 0
        self._answers: dict[int, m.Answer] = {}
        self._expected: set[int] = set()
        self._gave_up: m.Rebalance | None = None
        """The loss with which the member gave up, until a poll tells of it."""

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def call(self, kind: type[m.ApplicationEvent], deadline: int, **fields: Any) -> Waits[Any]:
        """Send an application event and wait for its answer.

        Raises:
            ClosedError, FatalNetworkError: the network thread has ended. ClosedError: the grace period of `stop` is
            over. KafkaTimeoutError: the deadline passed. WakeupError: wakeup() was called. Or what the answer says.
        """
        self.ready()
        self.raise_wakeup()
        call_id = self.start(kind, deadline, **fields)
        return (yield from self.finish(kind, call_id, deadline))

    def hand_over(self, kind: type[m.ApplicationEvent], deadline: int, **fields: Any) -> Waits[None]:
        """Send an application event and wait until the network thread has carried it out, which needs no broker.

        So there is nothing that a wakeup would have to end: it is for the next call, and so is an error of the
        background. Raises as `call` does apart from that.
        """
        self.ready()
        call_id = self.start(kind, deadline, **fields)
        yield from self.finish(kind, call_id, deadline, heeds_wakeup=False)

    def ready(self) -> None:
        """A call may begin, unless the network side has ended."""
        self.take_background_events()
        if self._client_state.ended:
            self._raise_dead()

    def call_unless_stopped(self, kind: type[m.ApplicationEvent], deadline: int, **fields: Any) -> Waits[Any]:
        """As `call`; None as soon as `stop` was called."""
        self.ready()
        self.raise_wakeup()
        if self.stopping:
            return None
        call_id = self.start(kind, deadline, **fields)
        return (yield from self.finish(kind, call_id, deadline, heeds_stop=True))

    def finish(
        self,
        kind: type[m.ApplicationEvent],
        call_id: int,
        deadline: int,
        *,
        heeds_wakeup: bool = True,
        heeds_stop: bool = False,
        asked: Asked | None = None,
    ) -> Waits[Any]:
        """Wait for the answer to what `start` sent; raises as `call` does.

        Args:
            asked: this thread has written its request, whose plain answer may still come until it is taken over.
        """
        began, until = self._clock.now_ms(), add_ms(deadline, _GRACE_MS)
        try:
            while (answer := self.answer(call_id)) is None:
                if asked is not None and asked.is_answered:
                    return None
                if heeds_wakeup:
                    self.raise_wakeup()
                if heeds_stop and self.stopping:
                    return None
                if self._client_state.ended:
                    self._raise_dead()
                until = self._patience(kind, until)
                yield min(until, self.grace.wait_until(self._clock.now_ms(), began))
                self.take_background_events()
        finally:
            self.ignore(call_id)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def directly(
        self,
        kind: type[m.ApplicationEvent],
        call_id: int,
        began: int,
        deadline: int,
        ask: Callable[[], Asked | None],
    ) -> Waits[Any]:
        """Have ``ask`` send the request of a call on this thread, and wait for its end. Raises as `call` does.

        What has no plain answer soon is left to the network thread, which answers it as any other. `NOT_SENT`: it was
        not sent.

        Args:
            call_id: from `next_id`. began: the present time (ms).
        """
        # Programs commit each record: what has nothing to do is not called.
        client_state, grace = self._client_state, self.grace
        until, now = min(deadline, began + _SOON_MS), began
        # First: a call of a signal handler may have the network thread take the request over, and take its answer.
        self._expected.add(call_id)
        try:
            asked = ask()
            if asked is None:
                self.ignore(call_id)
                return NOT_SENT
            while asked.is_waiting and now < until:
                if self.woken or self.is_awaited:
                    self.raise_wakeup()
                if client_state.ended:
                    self._raise_dead()
                yield until if grace.close_by == FOREVER else min(until, grace.wait_until(now, began))
                if client_state.background_events:
                    self.take_background_events()
                if asked.is_answered:
                    break
                now = self._clock.now_ms()
            is_answered = asked.is_answered
            if not is_answered:
                client_state.wake()
        except BaseException:
            self.ignore(call_id)
            # It takes the request over as soon as it is awake, if that was sent.
            client_state.wake()
            raise
        if is_answered:
            # So there is no `Answer`.
            self._expected.discard(call_id)
            return None
        return (yield from self.finish(kind, call_id, deadline, asked=asked))

    def start(self, kind: type[m.ApplicationEvent], deadline: int, **fields: Any) -> int:
        """Send an application event whose answer is looked for by `answer`, now and then. Returns its id."""
        call_id = self.expect()
        self._client_state.send(kind(call_id, deadline, **fields))
        return call_id

    def expect(self) -> int:
        """The id of an event that is sent now, and whose answer is looked for as that of `start`."""
        call_id = self.next_id()
        self._expected.add(call_id)
        return call_id

    def answer(self, call_id: int) -> m.Answer | None:
        """The answer to what `start` sent, once; None while there is none."""
        answer = self._answers.pop(call_id, None)
        if answer is not None:
            self._expected.discard(call_id)
        return answer

    def ignore(self, call_id: int) -> None:
        """Forget the answer to what `start` sent: nobody waits for it any more."""
        self._expected.discard(call_id)
        self._answers.pop(call_id, None)

    def leave(
        self, kind: type[m.ApplicationEvent], deadline: int, serve: Callable[[], Waits[None]], **fields: Any
    ) -> Waits[None]:
        """An application event during which the group asks for callbacks: ``serve`` runs them."""
        call_id = self.start(kind, deadline, **fields)
        began, until = self._clock.now_ms(), add_ms(deadline, _GRACE_MS)
        error: Exception | None = None
        while call_id not in self._answers and not self._client_state.ended:
            self.take_background_events()
            try:
                yield from serve()
            except Exception as raised:  # noqa: BLE001 - raised below, once the group is left
                error = error or raised
            if call_id in self._answers:
                break
            until = self._patience(kind, until)
            yield min(until, self.grace.wait_until(self._clock.now_ms(), began))
        answer = self.answer(call_id)
        if answer is not None and answer.error is not None:
            log.info("%s: %s", m.what_of(kind), answer.error)
        if error is not None:
            raise error

    def _patience(self, kind: type[m.ApplicationEvent], until: int) -> int:
        """Until when the network thread may take to answer, which was ``until``.

        Raises:
            KafkaTimeoutError: that is over.
        """
        now = self._clock.now_ms()
        if now >= add_ms(until, _GRACE_MS):
            # Nobody looked for so long: the machine was paused, and the network thread with it.
            return add_ms(now, _GRACE_MS)
        if now >= until:
            raise KafkaTimeoutError(_unanswered(kind))
        return until

    def wakeup(self) -> None:
        """From any thread: end the blocking call under way, or the next one."""
        self.woken = True
        self._client_state.alert()

    def nudge(self) -> None:
        """From any thread: the poll under way, or the next one, returns what there is, and waits for nothing."""
        self.nudged = True
        self._client_state.alert()

    def stop(self) -> None:
        """From any thread, and from a signal handler: polls return nothing from now on."""
        self.stopping = True
        self._client_state.alert()

    def polled_after_stop(self) -> None:
        """A poll returns nothing because of `stop`. Says once that a loop seems not to look whether it shall end."""
        self._polls_after_stop += 1
        if self._polls_after_stop == _SURELY_A_SPIN:
            log.warning(
                "poll() was called %d times after stop(), and returned nothing each time. End the loop when "
                "consumer.stopping is true",
                self._polls_after_stop,
            )

    # ------------------------------------------------------------ what came back

    def take_background_events(self) -> None:
        background_events = self._client_state.background_events
        if not background_events:
            return
        began = self._clock.now_ms()
        while background_events:
            # Taken out last, and what is done with it may be done again: an interruption loses no background event.
            event = background_events[0]
            if isinstance(event, m.Answer):
                # An answer nobody waits for belongs to a call that was ended by a wakeup or Ctrl-C.
                if event.id in self._expected:
                    self._answers[event.id] = event
            elif isinstance(event, m.CallbackNeeded):
                if not self.callbacks or self.callbacks[-1] is not event:
                    self.callbacks.append(event)
                if isinstance(event, m.AssignPartitions) and event.finished is not None:
                    self.group = event.finished.group
            elif isinstance(event, m.CommitCompleted):
                self.on_commit(event)
            elif isinstance(event, m.IdentityChanged):
                self.group = event.group
                if event.group.generation_id > 0:
                    # It was let in: what it was refused with is over.
                    self.fatal = None
            elif isinstance(event, m.RebalanceFinished):
                self.group, self._gave_up = event.group, event.rebalance
            elif isinstance(event, m.Failed):
                self._failed(event)
            elif isinstance(event, m.Stalled):
                self.stalled = event
            else:
                self.on_event(event)
            background_events.popleft()
        self._client_state.measures.background_events.taken(began, self._clock.now_ms())

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """What was lost, and is told by the next poll. Until then the application may hold records of it."""
        if not self.callbacks:
            return frozenset()
        losses = [event.partitions for event in self.callbacks if isinstance(event, m.LosePartitions)]
        return frozenset().union(*losses)

    def adopt_identity(self) -> None:
        """What polls return from now on goes with the present identity, unless a loss is still to be told.

        Only polls call this, and what ends a subscription: whatever else takes background events must not give records
        of an earlier membership the identity of the present one, or a worker that was away commits what others have
        read.
        """
        if self.identity is not self.group and not self.lost:
            if self._gave_up is not None:
                self.add_rebalance(self._gave_up)
                self._gave_up = None
            self.identity = self.group

    def add_rebalance(self, rebalance: m.Rebalance) -> None:
        """A poll tells of this one. Done again after an interruption it does nothing twice."""
        if not any(each is rebalance for each in self.rebalances):
            self.rebalances.append(rebalance)
            del self.rebalances[:-_HISTORY]

    def _failed(self, event: m.Failed) -> None:
        """Keep an error for the next call. What is repeated in the background is told once."""
        if event.fatal:
            self.fatal = event.error
        # The same words under another fetch epoch are another error: the earlier one is void by now.
        elif (str(event.error), event.fetch_epoch, event.gave_up) not in (
            (str(each.error), each.fetch_epoch, each.gave_up) for each in self.failures
        ):
            self.failures.append(event)

    # ------------------------------------------------------------ what must end a call

    @property
    def owes_a_reason(self) -> bool:
        """Whether the application was not told yet why the member gave up."""
        return any(failure.gave_up for failure in self.failures)

    def raise_failure(self, *, known: Exception | None = None) -> None:
        """Raise the first error of the background that is true and in its place, unless it is ``known``.

        One of a position comes after the records that were fetched before it, and again with each poll until a seek
        answers it. Any other is told once.
        """
        place = 0
        while place < len(self.failures):
            failure = self.failures[place]
            if failure.partition is None:
                # Nothing stands in between: Ctrl-C must not take the place of an error that is told only once.
                del self.failures[place]
                raise failure.error
            if not self.stands(failure):
                del self.failures[place]
            elif self.has_records(failure.partition, failure.fetch_epoch):
                place += 1
            else:
                # Behind the others, so that each of several is told.
                self.failures.append(failure)
                del self.failures[place]
                raise own_copy(failure.error) from failure.error
        if self.fatal is not known:
            self.raise_fatal()
        if self._client_state.ended:
            self._raise_dead()

    def raise_fatal(self) -> None:
        """What the group refused this member for, for good: calls that need the group raise it, until subscribe()."""
        if self.fatal is not None:
            raise own_copy(self.fatal) from self.fatal

    def raise_wakeup(self) -> None:
        if self.is_awaited:
            raise ClosedError("another thread closes this consumer")
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup() was called")

    def _raise_dead(self) -> None:
        raise ended("consumer", self._client_state.dead)


def _unanswered(kind: type[m.ApplicationEvent]) -> str:
    why = "a C call that holds the GIL may keep it from running"
    return f"{m.what_of(kind)}: the network thread did not answer in time; {why}"
