# The types of fetched.py where it is compiled.

from kadence._native.records cimport Cursor, Record

cdef class FetchedRecords(Cursor):
    cdef readonly object _bytes
    cdef Py_ssize_t _size
    cdef readonly Py_ssize_t unpackings
    cdef readonly Py_ssize_t taken_bytes
    cdef Py_ssize_t _unpacked
    cdef public Py_ssize_t unpack_room
    cdef Py_ssize_t _largest
    cdef Py_ssize_t _max_batch_bytes
    cdef Py_ssize_t _retained
    cdef bint _check_crcs
    cdef bint _is_closed
    cdef object _aborted
    cdef object _fields
    cdef object _error
