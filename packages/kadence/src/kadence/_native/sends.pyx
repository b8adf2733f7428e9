"""Batches that the application's thread sends by itself (`kadence.producer.direct_sends`).

Windows has nothing in its place.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.kadence._native.append import FastAppender, OpenBatch, ProduceRequestResult
from cython.cimports.kadence._native.builder import kd_crc32c_init, kd_frame
from cython.cimports.kadence._native.drain import (
    KD_DIRECT_ANSWERED,
    KD_DIRECT_UNAWAITED,
    KD_DIRECT_WAITING,
    Asked,
    Intake,
    kd_direct_outcome,
    kd_direct_turn,
    kd_i64,
)

SOON = 0.1
"""A thread waits so long (s) for a plain answer before the network thread takes the request over."""

kd_crc32c_init()


@cython.final
@cython.cclass
class SendForm:
    """Requests with one batch of one partition, on one connection, and their plain answers.

    Args:
        intake: of the connection. delivery: the partition's `PartitionDelivery`.
        head: the bytes of a request before the length of the batch. tail: those after the batch.
        answer: the plain one, with its length. free_at: the place of offset, time and start of the log in it.
    """

    def __init__(self, intake: Intake, delivery, head: bytes, tail: bytes, answer: bytes, free_at: cython.size_t):
        self._intake = intake
        self._delivery = delivery
        self._head = head
        self._tail = tail
        self._answer = answer
        self._free_at = free_at

    def remind(self) -> None:
        """See `Intake.remind`."""
        self._intake.remind()

    @cython.cfunc
    def send(self, batch: OpenBatch) -> Asked:
        """Number and seal a batch, and write the request, if nothing of its partition is undecided. Under the gate.

        None: nothing was changed.
        """
        # First: it may begin a collection. From here on nothing is made until all of it is done or undone: neither a
        # signal handler nor the network thread comes in between.
        asked: Asked = Asked.__new__(Asked)
        asked._request = batch
        delivery: object = self._delivery
        turn: cython.uint = kd_direct_turn(cython.address(self._intake._intake.direct))
        if not turn or delivery.undecided or not delivery.is_known or delivery.producer_id < 0:
            return None
        frame: cython.pointer(kd_frame) = cython.address(batch.builder.frame)
        producer_id: cython.longlong = delivery.producer_id
        epoch: cython.int = delivery.epoch
        sequence: cython.int = delivery.next_sequence
        request: cython.uchar[16384]
        kd_send_seal(frame, producer_id, epoch, sequence)
        length: cython.size_t = kd_send_request(
            request,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(self._head)),
            PyBytes_GET_SIZE(self._head),
            frame,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(self._tail)),
            PyBytes_GET_SIZE(self._tail),
        )
        if not length or not self._intake._write(turn, request, length, self._answer, self._free_at, 24, asked, None):
            return None
        frame.is_sealed = True
        batch.is_open = False
        delivery.next_sequence = (sequence + frame.count) & 0x7FFFFFFF
        batch.producer_id = producer_id
        batch.epoch = epoch
        batch.base_sequence = sequence
        return asked


@cython.final
@cython.cclass
class Sums:
    """Batches of a topic that were answered, and not counted yet: their number, their records and their bytes."""


@cython.cclass
class AwaitedSends:
    """The part of `DirectSends` that a record runs for which a program waits, and which was sent at once.

    Args:
        accumulator: the producer's. topics: its `cluster` is read. mine: its ``gate`` is the producer's on the thread
            that runs callbacks, and on no other. is_on_loop: whether tasks of an event loop wait.

    Attributes:
        sent: how many batches were sent. _ways: by node. _forms: by partition, with the way of each, for `_forms_of`.
        _under_way: the batch that was sent last, until it is decided or taken over. _is_expected: whether the program
            will wait for the next batch, too. _was_single: whether it waited for a single record alone. _sums: of each
            topic. All but the ways are changed under the gate.
    """

    def __init__(self, accumulator: FastAppender, topics, mine, is_on_loop: cython.bint):
        self._accumulator = accumulator
        self._gate = accumulator.gate
        self._topics = topics
        self._mine = mine
        self._is_on_loop = is_on_loop
        self._ways = {}
        self._forms = {}
        self._sums = {}

    def send_first(self, batch: OpenBatch) -> bool:
        """Send a batch that was just begun, if the program is expected to wait for it. Under the gate."""
        if not self._is_expected or self._accumulator.incomplete or self._accumulator.waiting:
            # What only waits, a signal has kept from being counted: it is sent first.
            return False
        self._is_expected = False
        if self._is_on_loop:
            python: object = self
            return python._send_first_on_loop(batch)
        return self.send(batch)

    def _send(self, batch: OpenBatch) -> bool:
        """Send it, if nothing is in its way. Under the gate."""
        return self.send(batch)

    @cython.cfunc
    def send(self, batch: OpenBatch) -> cython.bint:
        if self._under_way is not None:
            # A signal kept a thread from deciding that one, and it would be forgotten. The network thread decides it.
            return False
        form: SendForm = self.known(batch.tp)
        if form is None:
            python: object = self
            form = python._form(batch.tp)
            if form is None:
                return False
        asked: Asked = form.send(batch)
        if asked is None:
            return False
        # In this order: whoever waits for its answer decides what is under way.
        self._under_way = batch
        result: ProduceRequestResult = batch.delivery
        result.asked = asked
        self.sent += 1
        self.went_out(batch, result)
        return True

    @cython.cfunc
    def known(self, tp: object) -> SendForm:
        """The form of a partition, where its connection is still that to its leader; else None."""
        if self._forms_of is not self._topics.cluster:
            return None
        found: tuple = self._forms.get(tp)
        if found is None or self._ways.get(found[0].node_id) is not found[0]:
            return None
        return found[1]

    def _went_out(self, batch: OpenBatch) -> None:
        """It is out: count its memory, once. Under the gate."""
        self.went_out(batch, batch.delivery)

    @cython.cfunc
    def went_out(self, batch: OpenBatch, result: ProduceRequestResult) -> object:
        result.expedite = None
        if not result.done:
            self._accumulator.holds(batch)
        return None

    def await_answer(self, delivery: ProduceRequestResult, asked: Asked, seconds) -> bool:
        """Wait so long for the plain answer to a batch, which is then decided. Without the gate.

        If it is not, the network thread decides it as any other. True: it is decided.

        Args:
            seconds: None: as long as answers usually take. False is returned at once where this thread may not wait.
        """
        if seconds is None:
            if self._is_on_loop or self._accumulator.is_mine() or self._mine.gate is self._gate:
                return False
            seconds = SOON
        if not asked.enter():
            if kd_direct_outcome(cython.address(asked._asked)) == KD_DIRECT_ANSWERED:
                # A signal has kept the thread that waited before from deciding it.
                self.settle(delivery, asked)
            return delivery.done
        try:
            asked.wait(seconds)
        finally:
            asked.leave()
            if kd_direct_outcome(cython.address(asked._asked)) == KD_DIRECT_ANSWERED:
                self.settle(delivery, asked)
        outcome: cython.int = kd_direct_outcome(cython.address(asked._asked))
        if outcome == KD_DIRECT_WAITING or outcome == KD_DIRECT_UNAWAITED:
            self.wake()
        return delivery.done

    @cython.cfunc
    def wake(self) -> object:
        """Wake the network thread."""
        accumulator: object = self._accumulator
        accumulator.wakeup()
        return None

    @cython.cfunc
    def settle(self, delivery: ProduceRequestResult, asked: Asked) -> object:
        """The plain answer has come: decide the batch, unless callbacks are to run, which the network thread does."""
        self._accumulator.acquire()
        try:
            batch: OpenBatch = self._under_way
            if batch is None or batch.delivery is not delivery:
                return None
            if delivery.is_watched():
                self.wake()
                return None
            self._accumulator.lets_go(batch)
            if not delivery.done:
                delivery.write_alone(kd_i64(asked._asked.found), kd_i64(asked._asked.found + 8))
            self.ended(batch, delivery)
        finally:
            self._accumulator.release()
        return None

    def _ended(self, batch: OpenBatch) -> None:
        """It is decided. If a signal ends this thread's work before this, the network thread does it.

        Under the gate.
        """
        self.ended(batch, batch.delivery)

    @cython.cfunc
    def ended(self, batch: OpenBatch, delivery: ProduceRequestResult) -> object:
        if self._accumulator.waiting:
            python: object = self
            python._out_of_line(batch)
        self._under_way = None
        delivery.asked = None
        self._is_expected = not self._accumulator.incomplete
        self._was_single = self._is_expected and batch.builder.frame.count == 1
        sums: Sums = self._sums.get(delivery.topic)
        if sums is None:
            sums = self._sums[delivery.topic] = Sums()
        sums.batches += 1
        sums.records += batch.builder.frame.count
        sums.nbytes += batch.builder.frame.used
        return None


def found_in(asked: Asked) -> tuple:
    """The offset of the first record, and the time of the log, in ms; -1: the records have their own."""
    return kd_i64(asked._asked.found), kd_i64(asked._asked.found + 8)
