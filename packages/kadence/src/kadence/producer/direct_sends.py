"""Batches that the application's thread sends by itself, while nothing is in their way.

A program that waits for each record waits for nearly nothing but a round trip then. Where it waits for the only batch
that the producer has, that is sent when the wait begins. If that was a single record, the next `send` sends its own at
once, in the hope that the program will wait for that one, too. On an event loop it does so only if nothing else is
ready there; else, and after several records, it does so after the tasks that are ready, whose records go along. So a
program that sends several records before it waits keeps its batches, and one that does not wait pays for one record.

Numbers are given under the gate, with nothing of the producer undecided: then nobody else numbers a batch of the
partition. What is answered with anything but success, or not while a thread waits for it, becomes an ordinary batch in
flight of the network thread, which `Sender` knows as if it had sent it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from kadence._native.drain import Asked
from kadence._native.sends import SOON, AwaitedSends, SendForm, found_in
from kadence.client.loop_gate import LoopGate
from kadence.client.network_thread import NetworkClientDelegate
from kadence.clock import Clock
from kadence.connection.request import Request
from kadence.errors import UnsupportedVersionError
from kadence.net.direct import DirectWay
from kadence.producer.accumulator import Accumulator, Batch
from kadence.producer.futures import Delivery, deciding
from kadence.producer.sender import Sender
from kadence.producer.sequences import PartitionDelivery
from kadence.producer.topics import Topics
from kadence.protocol.client_frames import answer_header_version
from kadence.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kadence.types import TopicPartition
from kadence.wire import WireError, Writer

__all__ = ["DirectSends"]

_IN_USE_MS: Final = 10_000
"""So long after a program waited for a batch alone the ways stay open. Open ones are looked at twice a second."""

_FLEXIBLE: Final = 9
"""The first version whose lengths `SendForm` writes."""

_RECORDS: Final = b"records of a batch, which stand here"
_PLACE: Final = Struct(">qqq")
_MARKS: Final = (0x6B61_6465_6E63_6521, 0x5EED_F00D_5EED_F00D, 0x0123_4567_89AB_CDEF)
"""An offset, a time and a start of the log that show where they stand."""


class DirectSends(AwaitedSends):
    """See the top of the file.

    `send_first`, `send_awaited`, `awaited`, `await_answer` and `wait` are for the application's threads, the rest for
    the network thread.

    Args:
        is_closing: whether the producer is to end.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        topics: Topics,
        sender: Sender,
        delegate: NetworkClientDelegate,
        clock: Clock,
        is_closing: Callable[[], bool],
    ) -> None:
        super().__init__(accumulator, topics, deciding, isinstance(accumulator.gate, LoopGate))
        self.is_watched = True
        self._sender = sender
        self._delegate = delegate
        self._clock = clock
        self._is_closing = is_closing
        self._in_use_until = -1

    # -- application

    def _send_first_on_loop(self, batch: Batch) -> bool:
        """As `send_first`, where tasks wait. Under the gate."""
        gate, accumulator = self._gate, self._accumulator
        if self._was_single and gate.runs_only_this():
            return self._send_for(gate, batch)
        form = self._form(batch.tp)
        if form is None:
            return False
        # After the tasks that are ready now, whose records go along. Reminded first: a signal may come in between.
        form.remind()
        accumulator.queue(batch)
        gate.loop.call_soon(self._send_on_loop)
        accumulator.has_news = False
        return True

    def _send_on_loop(self) -> None:
        with self._gate:
            is_sent = self.send_awaited()
        if not is_sent:
            self._accumulator.wakeup()

    def send_awaited(self) -> bool:
        """Send the only waiting batch, for which the program waits. Under the gate."""
        accumulator = self._accumulator
        if len(accumulator.incomplete) != 1 or len(accumulator.waiting) != 1:
            return False
        (batch,) = accumulator.incomplete
        if batch.tp not in accumulator.waiting:
            return False
        gate = self._gate
        is_here = isinstance(gate, LoopGate) and gate.runs_here()
        if not (self._send_for(gate, batch) if is_here else self._send(batch)):
            return False
        self._out_of_line(batch)
        return True

    def _send_for(self, gate: LoopGate, batch: Batch) -> bool:
        """As `_send`, on the loop, which is woken by the plain answer."""
        slices = gate.slices
        # First: nothing may fail once the batch is out.
        shown = slices.descriptor()
        if not self._send(batch):
            return False
        asked = batch.delivery.asked
        if shown >= 0 and asked is not None and asked.enter(shown, slices):
            slices.when_raised(asked, partial(self._raised, batch, asked))
        return True

    def _raised(self, batch: Batch, asked: Asked) -> None:
        """The plain answer may have come. On the loop."""
        gate, delivery = self._gate, batch.delivery
        assert isinstance(gate, LoopGate)
        with gate:
            if not asked.is_answered or self._under_way is not batch:
                return
            if delivery.has_watchers:
                self._accumulator.wakeup()
                return
            self._accumulator.let_go(batch)
            if not delivery.done:
                found = found_in(asked)
                if delivery.written_alone(*found):
                    delivery.wake_waiters(gate.slices)
                else:
                    self._accumulator.unnotified.add(delivery)
                    delivery.complete_anew(*found, here=gate.slices)
            self._ended(batch)

    def awaited(self, delivery: Delivery) -> None:
        """The program waits for a batch: will it wait for the next one, too? Under the gate."""
        self._in_use_until = self._clock.now_ms() + _IN_USE_MS
        incomplete = self._accumulator.incomplete
        is_alone = len(incomplete) == 1 and all(each.delivery is delivery for each in incomplete)
        is_single = is_alone and all(each.count == 1 for each in incomplete)
        # On a loop the records of all tasks that are ready go along.
        self._is_expected = is_single or (is_alone and isinstance(self._gate, LoopGate))
        self._was_single = self._was_single and is_single

    def _out_of_line(self, batch: Batch) -> None:
        """It does not wait to be sent any more. Under the gate."""
        waiting = self._accumulator.waiting.get(batch.tp)
        if waiting and waiting[0] is batch:
            self._accumulator.take(batch.tp)

    def _form(self, tp: TopicPartition) -> SendForm | None:
        """The form of a partition on the connection to its leader; None: it cannot be sent directly."""
        cluster = self._topics.cluster
        if self._forms_of is not cluster:
            self._forms, self._forms_of = {}, cluster
        way, form = self._forms.get(tp, (None, None))
        if way is None or self._ways.get(way.node_id) is not way:
            leader = cluster.leader(tp)
            way = None if leader is None else self._ways.get(leader)
            turn = 0 if way is None else way.turn()
            if way is None or not turn:
                return None
            delivery = self._sender.deliveries.get(tp)
            form = None if delivery is None else self._made(way, tp, delivery)
            if delivery is None or way.turn() != turn:
                # Nothing was sent to it yet, or the form may be made of two states.
                return None
            self._forms[tp] = way, form
        return form

    def _made(self, way: DirectWay, tp: TopicPartition, delivery: PartitionDelivery) -> SendForm | None:
        request = self._sender.request_of(0, way.node_id, {tp: _RECORDS})
        try:
            frame, version = way.frame(request)
        except (UnsupportedVersionError, WireError):
            # The network thread meets the same error, and reports it.
            return None
        at = frame.find(_RECORDS)
        if version < _FLEXIBLE or frame.count(_RECORDS) != 1:
            return None
        answer = Writer()
        answer.put(bytes(4))
        if answer_header_version(ProduceRequest, version):
            answer.tags({})
        topic_id = request.message.topic_data[0].topic_id
        written = PartitionProduceResponse(
            index=tp.partition,
            base_offset=_MARKS[0],
            log_append_time_ms=_MARKS[1],
            log_start_offset=_MARKS[2],
        )
        topic = TopicProduceResponse(topic_id=topic_id, name=tp.topic, partition_responses=[written])
        ProduceResponse(responses=[topic]).write(answer, version)
        body = answer.getvalue()
        marks = _PLACE.pack(*_MARKS)
        if body.count(marks) != 1:
            return None
        body = len(body).to_bytes(4) + body
        # The length of the records takes one byte.
        return SendForm(
            way.intake, delivery, frame[: at - 1], frame[at + len(_RECORDS) :], body, body.index(marks)
        )

    def wait(self, delivery: Delivery, asked: Asked, seconds: float | None) -> float | None:
        """As `await_answer`, but no longer than usual.

        Returns:
            The rest of ``seconds``.
        """
        if seconds is None:
            self.await_answer(delivery, asked, SOON)
            return None
        began = self._clock.now_ms()
        self.await_answer(delivery, asked, min(SOON, seconds))
        return max(seconds - (self._clock.now_ms() - began) / 1000, 0)

    # -- network thread

    def may(self, way: DirectWay) -> bool:
        now = self._clock.now_ms()
        if now >= self._in_use_until or self._is_closing() or not way.is_free(now):
            return False
        self._ways[way.node_id] = way
        return True

    def took_over(self, way: DirectWay, request: Batch, now: int) -> Request:
        batch = request
        with self._gate:
            # An exception may have kept the application's thread from these.
            self._out_of_line(batch)
            self._went_out(batch)
            if self._under_way is batch:
                self._under_way = None
            batch.delivery.asked = None
            self._topics.used(batch.tp.topic, now)
        made = self._sender.sent_directly(now, way.node_id, batch)
        self._delegate.sent_by_others(self._sender, [made])
        return made

    def answered(self, now: int, count: int, waited_ms: int) -> None:
        with self._gate:
            self._in_use_until = now + _IN_USE_MS
            left = self._under_way
            asked = None if left is None else left.delivery.asked
            if left is None or asked is None or not asked.is_answered:
                left = None
            else:
                # A thread was interrupted, or has left the callbacks to this one.
                self._accumulator.release(left)
                if not left.delivery.done:
                    self._accumulator.unnotified.add(left.delivery)
                self._ended(left)
            sums, self._sums = self._sums, {}
            for topic in sums:
                self._topics.used(topic, now)
        if left is not None and asked is not None:
            left.delivery.complete_anew(*found_in(asked))
        measures = self._accumulator.measures
        measures.now = now
        measures.latency_ms.record_alike(now, waited_ms, count)
        measures.throttle_ms.record_alike(now, 0, count)
        for name, each in sums.items():
            measures.batches_sent_directly(name, each.batches, each.records, each.nbytes)
