# The C declarations that sends.pyx uses.

cimport cython
from kadence._native.builder cimport kd_frame
from kadence._native.drain cimport Intake

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
