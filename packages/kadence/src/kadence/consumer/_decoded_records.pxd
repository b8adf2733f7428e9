# The C types of _decoded_records.py.

cimport cython
from kadence._native.records cimport Record, with_content

cdef extern from "shared.h":
    ctypedef Py_ssize_t kd_shared_size
    ctypedef long long kd_shared_number
    ctypedef unsigned long kd_shared_thread
    ctypedef bint kd_shared_bool

@cython.final
cdef class Attention:
    cdef public kd_shared_bool up
    cdef object __weakref__

@cython.final
cdef class DecodedRecords:
    cdef readonly long long fetch_epoch
    cdef readonly list records
    cdef readonly kd_shared_size count
    cdef public kd_shared_size index
    cdef public kd_shared_size began
    cdef public kd_shared_size counted
    cdef public bint is_last
    cdef public bint is_processed
    cdef readonly object start
    cdef readonly object end
    cdef readonly object start_epoch
    cdef readonly object end_epoch
    cdef object place(self, Py_ssize_t index)

cdef class DeliveryState:
    cdef public kd_shared_number fetch_epoch
    cdef public kd_shared_bool paused
    cdef public kd_shared_bool work_paused
    cdef public kd_shared_bool revoking
    cdef public kd_shared_bool held
    cdef object _end
    cdef public DecodedRecords decoded
    cdef DecodedRecords decoded_now(self)

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

cdef class Records:
    cdef object _partition
    cdef list _records
    cdef object _chunks
    cdef object _moved
    cdef object _pairs(self)

cdef Records one_chunk(object partition, list records)
cpdef Records intercept(object interceptors, tuple consuming, Records given)
