# The types of _polled_records.py where it is compiled.

cimport cython

cdef class Records:
    cdef object _partition
    cdef list _records
    cdef object _chunks
    cdef object _moved
    cdef object _pairs(self)

cdef Records one_chunk(object partition, list records)
cpdef Records intercept(object interceptors, tuple consuming, Records given)
