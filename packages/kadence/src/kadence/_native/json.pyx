"""The JSON reader of Spark's source: documents to buffers in Arrow's layout, by json_rows.h."""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int32_t, int64_t
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy, memset

cdef extern from "busy.h" nogil:
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


@cython.cfunc
def _free(node: cython.pointer(kd_node)) -> cython.void:
    i: cython.int
    for i in range(node.count if node.children != cython.NULL else 0):
        _free(node.children + i)
    free(node.children)
    free(node.values.data)
    free(node.ends.data)
    free(node.nulls.data)


@cython.cfunc
def _bits(found: cython.pointer(kd_bytes)) -> object:
    """Bytes that are 0 or 1 as bits."""
    i: cython.Py_ssize_t
    count: cython.Py_ssize_t = found.size
    made: object = PyBytes_FromStringAndSize(cython.NULL, (count + 7) // 8)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    memset(to, 0, (count + 7) // 8)
    for i in range(count):
        to[i >> 3] |= found.data[i] << (i & 7)
    return made


@cython.cfunc
def _validity(node: cython.pointer(kd_node)) -> object:
    """One bit per row, 1 = not null; None when nothing is null."""
    if node.nulls.size == 0:
        return None
    i: cython.Py_ssize_t
    row: int32_t
    size: cython.Py_ssize_t = (node.length + 7) // 8
    made: object = PyBytes_FromStringAndSize(cython.NULL, size)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    memset(to, 0xFF, size)
    for i in range(node.nulls.size // 4):
        row = cython.cast(cython.pointer(int32_t), node.nulls.data)[i]
        to[row >> 3] &= ~(1 << (row & 7))
    return made


@cython.cfunc
def _ends(node: cython.pointer(kd_node)) -> object:
    """Arrow's offsets: the ends after a zero."""
    made: object = PyBytes_FromStringAndSize(cython.NULL, node.ends.size + 4)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    memset(to, 0, 4)
    if node.ends.size:
        memcpy(to + 4, node.ends.data, node.ends.size)
    return made


@cython.final
@cython.cclass
class Reader:
    """Reads documents that are objects.

    Args:
        column: the struct's `kadence.columns.json_rows.Column`.
        starts, offsets: of `kadence.columns.json_rows.Zone`, as bytes of int64 and of int32.
        keeps_all: as json_rows.h has it.
    """

    root: kd_node
    reading: kd_reading
    refused: kd_bytes
    names: list  # and what else the columns point into
    is_busy: cython.int

    def __cinit__(self, column, starts: bytes, offsets: bytes, keeps_all: bool):
        self.reading.keeps_all = keeps_all
        self.names = [starts, offsets]
        if len(starts) != 2 * len(offsets) + 8:
            raise ValueError("a zone whose starts are not one more than its offsets")
        self.reading.zone.starts = cython.cast(cython.pointer(int64_t), PyBytes_AS_STRING(starts))
        self.reading.zone.offsets = cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(offsets))
        self.reading.zone.count = len(offsets) // 4
        self.build(cython.address(self.root), column)

    def __dealloc__(self):
        _free(cython.address(self.root))
        free(self.refused.data)

    @cython.cfunc
    def build(self, node: cython.pointer(kd_node), column: object) -> cython.void:
        name: bytes = column.name
        self.names.append(name)
        node.name = name
        node.name_size = len(name)
        kd_prepare_name(node)
        node.kind = column.kind
        node.width = column.width
        node.scale = column.scale
        node.precision = column.precision
        node.is_zoned = column.is_zoned
        children: tuple = tuple(column.children)
        if children:
            node.children = cython.cast(
                cython.pointer(kd_node), calloc(len(children), cython.sizeof(kd_node))
            )
            if node.children == cython.NULL:
                raise MemoryError
            node.count = len(children)
            for i, child in enumerate(children):
                self.build(node.children + cython.cast(cython.int, i), child)

    def read(self, ends, data, start: int64_t, count: int64_t):
        """Read the documents of a binary column.

        Args:
            ends, data: its buffers; ends are int32. start: the first row in them. count: how many rows.

        Returns:
            The column's buffers as `taken` has them, and the rows that were refused, which are null in it; None while
            another thread uses this reader.
        """
        if kd_take(cython.address(self.is_busy)):
            return None
        try:
            return self.documents(ends, data, start, count)
        finally:
            kd_let_go(cython.address(self.is_busy))

    @cython.cfunc
    def documents(self, ends: object, data: object, start: int64_t, count: int64_t) -> object:
        """As `read`; no other thread is in here."""
        ends_view: Py_buffer
        data_view: Py_buffer
        if start < 0 or count < 0 or count > 0x7FFFFFFF:
            raise ValueError(f"{count} rows from {start} on")
        PyObject_GetBuffer(ends, cython.address(ends_view), PyBUF_SIMPLE)
        try:
            if ends_view.len < 4 * (start + count + 1):
                raise ValueError("a column whose buffer of offsets is too short")
            PyObject_GetBuffer(data, cython.address(data_view), PyBUF_SIMPLE)
            try:
                offsets: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), ends_view.buf)
                if not kd_are_sound(offsets, start, start + count, data_view.len):
                    raise ValueError("a column whose offsets go back, or lead outside of its data")
                kd_cut(cython.address(self.root), 0)
                self.refused.size = 0
                self.reading.is_out_of_memory = False
                kd_documents(
                    cython.address(self.reading),
                    cython.address(self.root),
                    offsets,
                    cython.cast(cython.p_uchar, data_view.buf),
                    start,
                    start + count,
                    cython.address(self.refused),
                )
                if self.reading.is_out_of_memory:
                    raise MemoryError
                refused: list = [
                    cython.cast(cython.pointer(int32_t), self.refused.data)[i]
                    for i in range(self.refused.size // 4)
                ]
                return self.taken(cython.address(self.root)), refused
            finally:
                PyBuffer_Release(cython.address(data_view))
        finally:
            PyBuffer_Release(cython.address(ends_view))

    @cython.cfunc
    def taken(self, node: cython.pointer(kd_node)) -> object:
        """(rows, nulls, Arrow's buffers as bytes or None, children) of a column; the next read starts again."""
        child: cython.int
        buffers: list = [_validity(node)]
        if node.kind == KD_JSON_STRING or node.kind == KD_JSON_LIST:
            buffers.append(_ends(node))
        if node.kind == KD_JSON_BOOL:
            buffers.append(_bits(cython.address(node.values)))
        elif node.kind != KD_JSON_LIST and node.kind != KD_JSON_STRUCT:
            buffers.append(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, node.values.data), node.values.size)
            )
        children: list = []
        for child in range(node.count):
            children.append(self.taken(node.children + child))  # noqa: PERF401 - a C number
        return node.length, node.nulls.size // 4, buffers, children
