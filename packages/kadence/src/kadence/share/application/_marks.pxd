# The C types of _marks.py.

cimport cython
from kadence._native.records cimport Record
from kadence.consumer._decoded_records cimport DecodedRecords, kd_shared_bool

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

@cython.final
cdef class Chunk:
    cdef readonly object fetch
    cdef readonly object partition
    cdef public list records
    cdef public object rows
    cdef public bint is_decoded
    cdef public bytearray states
    cdef public dict bad
    cdef long long first
    cdef bint is_dense
    cdef bint extend(self, list records) except -1
    cdef bint cut(self, Py_ssize_t count, Py_ssize_t sent) except -1
    cdef bint _look_at_gaps(self) except -1

cdef class Marks

@cython.final
cdef class Words:
    cdef readonly dict fetches
    cdef readonly dict settled
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t said
    cdef readonly Py_ssize_t renews
    cdef list _looked
    cdef bint stands(self, Marks marks) except -1
    cdef bint count_as_sent(self) except -1

@cython.final
cdef class Marks:
    cdef public dict settled
    cdef public Py_ssize_t count
    cdef public Py_ssize_t renewing
    cdef public Py_ssize_t renewed
    cdef public kd_shared_bool gives_back
    cdef public kd_shared_bool says_renew
    cdef public Py_ssize_t unsaid
    cdef public Py_ssize_t said
    cdef public Py_ssize_t calls
    cdef public kd_shared_bool is_open
    cdef object __weakref__
    cdef unsigned long _thread
    cdef Chunk _chunk
    cdef Py_ssize_t _place
    cdef list _later
    cdef DecodedRecords _ahead
    cdef Chunk _followed
    cdef Py_ssize_t _base
    cdef void _count(self, long long state, Py_ssize_t sign) noexcept
    cdef bint _say(self, object record, long long kind) except -1
    cdef bint _say_behind_step(self, DecodedRecords ahead, object record, long long kind) except -1

cdef bint is_one(object record, object kept) noexcept

cdef int _UNSAID
cdef int _RENEWING
cdef int _RENEWED
cdef int _GONE
cdef int _ACCEPT
cdef int _RENEW
