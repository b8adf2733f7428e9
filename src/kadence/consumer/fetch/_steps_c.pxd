# The types of _steps.py where it is compiled, and what it takes from C.

cimport cython
from kadence.consumer._decoded_records_c cimport Attention, DecodedRecords, DeliveryState
from kadence.consumer._decoded_records_c cimport Decoder, Records, intercept, one_chunk
from kadence.records._records_c cimport Cursor as FetchedRecords, Record

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
    cdef public Py_ssize_t gone
    cdef public Py_ssize_t gone_in
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
    cdef public bint is_taking
    cdef public bint takes_many
    cdef public Py_ssize_t usual
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
    cdef list decoded(self, DecodedRecords decoded, Py_ssize_t limit)
    cdef object decoded_one(self, DeliveryState shared_partition, DecodedRecords decoded, object raw)
    cdef bint stands(self, DeliveryState shared_partition, DecodedRecords decoded, Py_ssize_t index) noexcept
    cdef void pass_on(self) noexcept
    cdef DecodedRecords take_turn(self, Py_ssize_t least)
    cdef DecodedRecords refill(self, ReaderState place, DecodedRecords decoded, Py_ssize_t limit)
    cdef bint read(self, ReaderState place, FetchedRecords opened, list items, Py_ssize_t limit) except -1
    cdef list given_whole(self, ReaderState place, DecodedRecords decoded)
    cdef void let_go_of(self, ReaderState place, DecodedRecords decoded) noexcept
    cdef bint count_taken(self) except -1
    cdef bint mark_touched_processed(self) except -1

cdef list _EMPTY
cdef Py_ssize_t _REFILL
cdef unsigned long this_thread() noexcept
