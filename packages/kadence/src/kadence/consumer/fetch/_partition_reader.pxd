# The C types of _partition_reader.py.

from kadence.consumer._decoded_records cimport DecodedRecords
from kadence.consumer.fetch._steps cimport ReaderState, Steps
from kadence.records.fetched cimport FetchedRecords
from kadence._native.records cimport Record

cdef class PartitionReader(ReaderState):
    cdef readonly object poll_measures
    cdef readonly object fetches
    cdef readonly Py_ssize_t retained
    cdef public bint waits
    cdef public object relieved_at
    cdef object _context

cdef Py_ssize_t before_end(Py_ssize_t count, long long offset, object end) except? -1
cdef long long position_at(long long offset, object end) except? -1
cdef list cut_records(list items, object end)
cdef list cut_columns(list parts, object end)
