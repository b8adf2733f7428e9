# What _json_c.py takes from C; Cython merges this with the .py file.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t

cdef extern from "../../records/busy.h" nogil:
    bint kd_take(int* flag)
    void kd_let_go(int* flag)

cdef extern from "json_rows.h" nogil:
    int KD_JSON_BOOL
    int KD_JSON_STRING
    int KD_JSON_LIST
    int KD_JSON_STRUCT
    ctypedef struct kd_bytes:
        unsigned char* data
        size_t size
    ctypedef struct kd_node:
        int kind
        int width
        int scale
        int precision
        int is_zoned
        int count
        const char* name
        size_t name_size
        kd_node* children
        kd_bytes values
        kd_bytes ends
        kd_bytes nulls
        int32_t length
    ctypedef struct kd_zone:
        const int64_t* starts
        const int32_t* offsets
        int count
    ctypedef struct kd_reading:
        kd_zone zone
        int keeps_all
        int is_out_of_memory
    bint kd_are_sound(const int32_t* ends, int64_t from_, int64_t to, int64_t size)
    void kd_cut(kd_node* node, int32_t length)
    void kd_prepare_name(kd_node* node)

cdef extern from "json_rows.h":
    void kd_documents(
        kd_reading* reading, kd_node* root, const int32_t* ends, const unsigned char* data, int64_t start, int64_t stop,
        kd_bytes* refused
    )

@cython.final
cdef class Reader:
    cdef kd_node root
    cdef kd_reading reading
    cdef kd_bytes refused
    cdef list names  # and what else the columns point into
    cdef int is_busy
    cdef void build(self, kd_node* node, object column) except *
    cdef object documents(self, object ends, object data, int64_t start, int64_t count)
    cdef object taken(self, kd_node* node)
