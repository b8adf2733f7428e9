# What _rows_c.py takes from C; Cython merges this with the .py file.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t
from kadence.records._builder_c cimport kd_frame

cdef extern from "rows.h" nogil:
    int KD_CROWDED
    int KD_DAMAGED
    int KD_NAMELESS
    ctypedef struct kd_strings:
        const unsigned char* valid
        const int64_t* ends
        const unsigned char* data
        int64_t start
        int64_t count
        int64_t bytes
    ctypedef struct kd_numbers:
        const unsigned char* valid
        const void* data
        int64_t start
    ctypedef struct kd_rows:
        int64_t most_headers
        kd_strings value
        kd_strings key
        kd_numbers lists
        kd_strings names
        kd_strings values
        kd_numbers partitions
        kd_numbers timestamps
        kd_numbers topics
    bint kd_is_null(const unsigned char* valid, int64_t at)
    int64_t kd_string(const kd_strings* column, int64_t row, const unsigned char** data)
    int64_t kd_estimate(const kd_rows* rows, int64_t row)
    int kd_add_row(kd_frame* frame, const kd_rows* rows, int64_t row, long long now)

@cython.final
cdef class _View:
    cdef Py_buffer view
    cdef bint is_held

cdef struct Lane:
    kd_frame* frame
    long long size
    long long limit
    int began
    int added
    int64_t first

@cython.final
cdef class Rows:
    cdef readonly Py_ssize_t count
    cdef kd_rows rows
    cdef list held
    cdef int check(self, Py_ssize_t row) except -1
    cdef _View keep(self, object buffer, int64_t least)
    cdef void strings(self, kd_strings* into, object column) except *
    cdef void numbers(self, kd_numbers* into, object column, int64_t count, int width) except *
    cdef int64_t fill(
        self, Lane* table, int count, int32_t* lanes, int64_t start, int64_t stop, long long now,
        long long memory, long long* used, bint* failed
    ) noexcept nogil
