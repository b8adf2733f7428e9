"""Batches that the application's thread sends by itself (`kadence.producer.direct_sends`).

Windows has nothing in its place.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.kadence._native.append import OpenBatch
from cython.cimports.kadence._native.builder import kd_crc32c_init, kd_frame
from cython.cimports.kadence._native.drain import Asked, Intake, kd_direct_turn, kd_i64

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

    def send(self, batch: OpenBatch) -> Asked | None:
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
        sequence: cython.int = delivery.next_sequence
        request: cython.uchar[16384]
        kd_send_seal(frame, delivery.producer_id, delivery.epoch, sequence)
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
        python: object = batch
        python.producer_id, python.epoch, python.base_sequence = delivery.producer_id, delivery.epoch, sequence
        return asked


def found_in(asked: Asked) -> tuple:
    """The offset of the first record, and the time of the log, in ms; -1: the records have their own."""
    return kd_i64(asked._asked.found), kd_i64(asked._asked.found + 8)
