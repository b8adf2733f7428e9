# The C declarations that sends.pyx uses.

cimport cython
from kadence._native.append cimport FastAppender, OpenBatch, ProduceRequestResult
from kadence._native.builder cimport kd_frame
from kadence._native.drain cimport Asked, Intake

cdef extern from "sends.h" nogil:
    enum:
        KD_SEND_MOST
    void kd_send_seal(kd_frame *frame, long long producer_id, int epoch, int sequence)
    size_t kd_send_request(
        unsigned char *into, const unsigned char *head, size_t head_length, const kd_frame *frame,
        const unsigned char *tail, size_t tail_length
    )

@cython.final
cdef class SendForm:
    cdef Intake _intake
    cdef object _delivery
    cdef bytes _head
    cdef bytes _tail
    cdef bytes _answer
    cdef size_t _free_at
    cdef Asked send(self, OpenBatch batch)

@cython.final
cdef class Sums:
    cdef readonly long long batches
    cdef readonly long long records
    cdef readonly long long nbytes

cdef class AwaitedSends:
    cdef readonly long long sent
    cdef readonly FastAppender _accumulator
    cdef readonly object _gate
    cdef readonly object _topics
    cdef object _mine
    cdef bint _is_on_loop
    cdef public dict _ways
    cdef public dict _forms
    cdef public object _forms_of
    cdef public OpenBatch _under_way
    cdef public bint _is_expected
    cdef public bint _was_single
    cdef public dict _sums
    cdef bint send(self, OpenBatch batch)
    cdef SendForm known(self, object tp)
    cdef object went_out(self, OpenBatch batch, ProduceRequestResult result)
    cdef object wake(self)
    cdef object settle(self, ProduceRequestResult delivery, Asked asked)
    cdef object ended(self, OpenBatch batch, ProduceRequestResult delivery)
