# The C declarations that builder.pyx uses, and its types for append.pyx.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint32_t

cdef extern from "crc32c.h" nogil:
    void kd_crc32c_init()
    uint32_t kd_crc32c(uint32_t crc, const unsigned char* data, size_t n, int portable)

cdef extern from "frame.h" nogil:
    ctypedef struct kd_frame:
        unsigned char* data
        Py_ssize_t used
        Py_ssize_t room
        bint is_sealed
        int count
        long long base
        long long latest
    unsigned char* kd_put(unsigned char* p, long long number)
    Py_ssize_t kd_width(long long number)
    unsigned char* kd_put_bytes(unsigned char* p, const unsigned char* data, Py_ssize_t size)
    bint kd_reserve(kd_frame* frame, Py_ssize_t more)
    int kd_add(kd_frame* frame, long long timestamp, const unsigned char* key, Py_ssize_t key_size,
               const unsigned char* value, Py_ssize_t value_size, Py_ssize_t tail, unsigned char** headers)
    int kd_add_plain(kd_frame* frame, long long timestamp, const unsigned char* key, Py_ssize_t key_size,
                     const unsigned char* value, Py_ssize_t value_size)

@cython.final
cdef class _View:
    cdef bint is_held
    cdef Py_buffer view

cdef class RecordEncoder:
    cdef kd_frame frame
    cdef public object packed
    cdef void _append(self, long long timestamp, object key, object value, object headers) except *
