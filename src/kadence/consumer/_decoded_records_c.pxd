# The types of _decoded_records.py where it is compiled.

cimport cython
from kadence.records._records_c cimport Record

@cython.final
cdef class Attention:
    cdef public bint up
    cdef object __weakref__

@cython.final
cdef class DecodedRecords:
    cdef readonly long long fetch_epoch
    cdef readonly list records
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t index
    cdef public Py_ssize_t began
    cdef public Py_ssize_t counted
    cdef public bint is_last
    cdef public bint is_processed
    cdef readonly object start
    cdef readonly object end
    cdef readonly object start_epoch
    cdef readonly object end_epoch
    cdef object place(self, Py_ssize_t index)

cdef class DeliveryState:
    cdef public long long fetch_epoch
    cdef public bint paused
    cdef public bint revoking
    cdef public bint held
    cdef public object end
    cdef public DecodedRecords decoded

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
