# The types of _partition_reader.py where it is compiled.

from kadence.consumer._decoded_records_c cimport DecodedRecords
from kadence.consumer.fetch._steps_c cimport ReaderState, Steps
from kadence.records._fetched_c cimport FetchedRecords
from kadence.records._records_c cimport Record

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
