# The types of _steps.py where it is compiled, and what it takes from C.

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from kadence.consumer._decoded_records_c cimport Attention, DecodedRecords, DeliveryState
from kadence.consumer._polled_records_c cimport Records, intercept, one_chunk
from kadence.records._records_c cimport Cursor, Record

cdef extern from "tick.h" nogil:
    long long kd_tick()

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    int PyIter_Send(object iterator, object value, PyObject **result) except -1

cdef extern from "awaits.h":
    ctypedef int (*kd_send)(object, object, PyObject **) except -1
    void kd_answer_sends(object type, kd_send send)

ctypedef object SharedPartition
ctypedef object Tally
ctypedef object TopicPartition

cdef class ReaderState:
    cdef readonly DeliveryState shared_partition
    cdef readonly object partition
    cdef readonly object records
    cdef public Cursor cursor
    cdef public bint is_torn
    cdef public Py_ssize_t held
    cdef public Py_ssize_t gone
    cdef public Py_ssize_t gone_in

@cython.final
cdef class Decoder:
    cdef object key
    cdef object value
    cdef object key_in_full
    cdef object value_in_full
    cdef bint is_at_value
    cdef public object failed
    cdef Record decode(self, Record raw)
    cdef str field(self)

@cython.final
cdef class Steps:
    cdef Attention attention
    cdef object clock
    cdef object polls
    cdef bint is_system
    cdef list order
    cdef public Decoder decoder
    cdef object interceptors
    cdef tuple consuming
    cdef object put_back_poll
    cdef public bint is_taking
    cdef bint is_intercepting
    cdef readonly list touched
    cdef readonly Py_ssize_t calls
    cdef readonly Py_ssize_t taken
    cdef Py_ssize_t at
    cdef long long now
    cdef unsigned long thread
    cdef long long time(self) except -2
    cdef object take_one(self)
    cdef Records intercepted(self, Records records)
    cdef list decoded(self, DeliveryState shared_partition, DecodedRecords decoded, Py_ssize_t limit)
    cdef object decoded_one(self, DeliveryState shared_partition, DecodedRecords decoded, object raw)
    cdef bint stands(self, DeliveryState shared_partition, DecodedRecords decoded, Py_ssize_t index) noexcept
    cdef void pass_on(self) noexcept
    cdef DecodedRecords take_turn(self, Py_ssize_t least)
    cdef DecodedRecords refill(self, ReaderState place, DecodedRecords decoded)
    cdef bint mark_touched_processed(self) except -1

@cython.final
cdef class Iteration:
    cdef Steps steps
    cdef object slowly

@cython.final
cdef class AsyncIteration:
    cdef Steps steps
    cdef object slowly

@cython.final
cdef class Next:
    cdef Steps steps
    cdef object slowly
    cdef object inner
    cdef object take(self)

cdef list _EMPTY
cdef Py_ssize_t _REFILL
cdef unsigned long this_thread() noexcept
