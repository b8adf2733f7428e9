# The C types of _fetch_collector.py.

from kadence.consumer._decoded_records cimport kd_shared_size
from kadence.consumer.fetch._partition_reader cimport PartitionReader
from kadence.consumer.fetch._steps cimport Steps

cdef class FetchCollector:
    cdef public object shared_state
    cdef readonly bint check_crcs
    cdef readonly Py_ssize_t max_batch_bytes
    cdef readonly Steps steps
    cdef public bint advanced
    cdef readonly kd_shared_size returned
    cdef readonly object _ring
    cdef readonly object _line
    cdef long long _buffer_memory
    cdef long long _unpack_bytes
    cdef long long _unpacked
    cdef long long _unpacked_ahead
    cdef long long _decoded_bytes
    cdef bint _is_short
    cdef dict _void
    cdef object _clock
    cdef long long _released_at
    cdef dict _passed
    cdef bint _has_told
    cdef kd_shared_size _taken_in
