# The C declarations that records.pyx uses, and its types for other compiled modules.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint32_t

cdef extern from "crc32c.h" nogil:
    int kd_hardware
    void kd_crc32c_init()
    uint32_t kd_crc32c(uint32_t crc, const unsigned char* data, size_t n, int portable)

cdef extern from "busy.h" nogil:
    bint kd_take(int* flag)
    void kd_let_go(int* flag)

cdef extern from "varint.h" nogil:
    bint kd_varint(unsigned char** at, unsigned char* end, int* into)
    void kd_prefetch(unsigned char* at, Py_ssize_t size)
    bint kd_varlong(unsigned char** at, unsigned char* end, long long* into)

cdef extern from "Python.h":
    void PyObject_GC_Track(object)
    bint PyObject_GC_IsTracked(object)
    bint PyObject_IS_GC(object)
    Py_ssize_t PY_SSIZE_T_MAX

cdef extern from "record_type.h":
    int kd_add_slot(object example, const char* name, object mark) except -1
    void kd_allocate_untracked(object type)
    int kd_keep_bytes(object example, object key, object value, void* is_own) except -1
    object kd_bytes(const unsigned char* data, Py_ssize_t size)

@cython.final
cdef class Record:
    cdef readonly object topic
    cdef readonly int partition
    cdef bint is_own
    # A number of Python's, though that takes 32 bytes more: the interpreter reads it four times as fast.
    cdef readonly object offset
    cdef readonly long long timestamp
    cdef readonly int timestamp_type
    # 0: no queue has delivered it. It lies where there would be nothing.
    cdef int deliveries
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly object leader_epoch

cdef Record with_content(Record raw, object key, object value)

# One record's fields, pointing into its batch. Sizes are -1 for null.
cdef struct Row:
    long long offset
    long long timestamp
    unsigned char* key
    int key_size
    unsigned char* value
    int value_size
    unsigned char* headers
    int header_count
    unsigned char* end

# The part of a batch's header that decides whether a cursor can go on to it by itself.
cdef struct Header:
    long long base_offset
    int length
    int leader_epoch
    uint32_t crc
    int attributes
    int last_delta
    long long base_timestamp
    long long max_timestamp
    int count

cdef class Cursor:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly Py_ssize_t remaining
    cdef public long long next_offset
    cdef Py_buffer view
    cdef bint is_open
    cdef unsigned char* at
    cdef unsigned char* end
    cdef long long base_offset
    cdef long long previous
    cdef long long last_offset
    cdef long long base_timestamp
    cdef int timestamp_type
    cdef long long append_time
    cdef public object leader_epoch
    cdef int epoch
    cdef public Py_ssize_t after
    cdef readonly long long after_offset
    cdef bint goes_on
    cdef bint check_crcs
    cdef Py_ssize_t checked
    cdef int is_busy
    cdef void begin(self) except *
    cdef void _release(self) except *
    cdef void _hold(self, object data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count) except *
    cdef void check_ahead(self) noexcept nogil
    cdef bint next_batch(self, Py_ssize_t largest) noexcept nogil
    cdef int step(self, Row* row) noexcept nogil
    cdef bint has_leftover(self) noexcept nogil
