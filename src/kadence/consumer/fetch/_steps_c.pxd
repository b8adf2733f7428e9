# What _steps_c.py takes from C; Cython merges this with the .py file.

cimport cython
from cpython.object cimport PyObject
from kadence.consumer._decoded_records_c cimport Attention, DecodedRecords, DeliveryState
from kadence.records._records_c cimport Cursor, Record

cdef extern from "tick.h" nogil:
    long long kd_tick()

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    int PyIter_Send(object iterator, object value, PyObject **result) except -1

cdef extern from "awaits.h":
    ctypedef int (*kd_send)(object, object, PyObject **) except -1
    void kd_answer_sends(object type, kd_send send)

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
    cdef object field(self)

@cython.final
cdef class Steps:
    cdef Attention attention
    cdef object clock
    cdef object polls
    cdef bint is_system
    cdef list order
    cdef public Decoder decoder
    cdef public bint is_taking
    cdef readonly list touched
    cdef readonly Py_ssize_t calls
    cdef readonly Py_ssize_t taken
    cdef Py_ssize_t at
    cdef long long now
    cdef unsigned long thread
    cdef object take_one(self)
    cdef list decoded(self, DeliveryState shared_partition, DecodedRecords decoded, Py_ssize_t limit)
    cdef object decoded_one(self, DecodedRecords decoded, object raw)
    cdef bint stands(self, DeliveryState shared_partition, DecodedRecords decoded, Py_ssize_t index) noexcept
    cdef void passes_on(self) noexcept
    cdef DecodedRecords take_turn(self, Py_ssize_t least)
    cdef DecodedRecords refill(self, ReaderState place, DecodedRecords decoded)
    cdef bint mark_touched_processed(self) except -1
