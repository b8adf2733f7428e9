# The C types of _steps.py, and what it takes from C.

cimport cython
from kadence.consumer._decoded_records cimport Attention, DecodedRecords, DeliveryState
from kadence.consumer._decoded_records cimport Decoder, Records, intercept, one_chunk
from kadence.consumer._decoded_records cimport kd_shared_bool, kd_shared_size, kd_shared_thread
from kadence._native.records cimport Cursor as FetchedRecords, Record

cdef extern from "tick.h" nogil:
    long long kd_tick()

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

ctypedef object SharedPartition
ctypedef object Tally
ctypedef object TopicPartition

cdef class ReaderState:
    cdef readonly DeliveryState shared_partition
    cdef readonly object partition
    cdef readonly object records
    cdef public FetchedRecords opened
    cdef public Py_ssize_t held
    cdef public kd_shared_size gone
    cdef public kd_shared_size gone_in
    cdef void replace(self, DecodedRecords decoded) noexcept

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
    cdef public kd_shared_bool is_taking
    cdef public Py_ssize_t usual
    cdef kd_shared_bool is_intercepting
    cdef readonly list touched
    cdef readonly kd_shared_size calls
    cdef readonly Py_ssize_t taken
    cdef readonly object latest
    cdef Py_ssize_t at
    cdef long long now
    cdef kd_shared_thread thread
    cdef long long time(self) except -2
    cdef object take_one(self)
    cdef Records intercepted(self, Records records)
    cdef list decoded(self, DecodedRecords decoded, Py_ssize_t limit)
    cdef object decoded_one(self, DeliveryState shared_partition, DecodedRecords decoded, object raw)
    cdef bint stands(self, DeliveryState shared_partition, DecodedRecords decoded, Py_ssize_t index) noexcept
    cdef void pass_on(self) noexcept
    cdef DecodedRecords take_turn(self, Py_ssize_t least)
    cdef DecodedRecords refill(self, ReaderState place, DecodedRecords decoded, Py_ssize_t limit)
    cdef bint read(self, ReaderState place, FetchedRecords opened, list items, Py_ssize_t limit) except -1
    cdef bint give_whole(self, ReaderState place, DecodedRecords decoded) except -1
    cdef void let_go_of(self, ReaderState place, DecodedRecords decoded) noexcept
    cdef bint count_taken(self) except -1
    cdef bint mark_touched_processed(self) except -1

cdef list _EMPTY
cdef Py_ssize_t _REFILL
cdef unsigned long this_thread() noexcept
