# The types of _decoded_records.py where it is compiled.

cimport cython

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
