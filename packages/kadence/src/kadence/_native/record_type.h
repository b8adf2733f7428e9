/* Three properties of the record's type that Cython cannot express; set once, when its module is loaded. */
#ifndef KADENCE_RECORD_TYPE_H
#define KADENCE_RECORD_TYPE_H

#include <Python.h>
#include <structmember.h>
#include <stddef.h>
#include <string.h>

/* Allocation that leaves the object unknown to the cycle collector, which would otherwise walk over every record
 * an application holds, and that keeps some dead records for the next poll (500 by default). Measured together:
 * 82 ns a record become 67. An owner that stores an object that might refer to the record tracks it.
 */
#ifdef Py_GIL_DISABLED
#define KD_KEPT 0 /* only the interpreter's lock protects the list */
#else
#define KD_KEPT 512
#endif

static PyObject *kd_kept[KD_KEPT + 1];
static int kd_kept_count = 0;

static PyObject *kd_alloc_untracked(PyTypeObject *type, Py_ssize_t items) {
    PyObject *object;
    (void)items;
    if (kd_kept_count) {
        object = kd_kept[--kd_kept_count];
        (void)PyObject_Init(object, type);
    } else if (!(object = PyObject_GC_New(PyObject, type))) {
        return NULL;
    }
    memset((char *)object + sizeof(PyObject), 0, (size_t)type->tp_basicsize - sizeof(PyObject));
    return object;
}

static void kd_free_untracked(void *object) {
    if (kd_kept_count < KD_KEPT) {
        kd_kept[kd_kept_count++] = (PyObject *)object;
    } else {
        PyObject_GC_Del(object);
    }
}

/* Cython keeps the layout to itself, so a field is found by looking for `mark` in an example that has it there. */
static Py_ssize_t kd_place(PyObject *example, const char *name, PyObject *mark) {
    Py_ssize_t at = sizeof(PyObject), end = Py_TYPE(example)->tp_basicsize - (Py_ssize_t)sizeof(PyObject *);
    while (at <= end && memcmp((char *)example + at, &mark, sizeof mark)) at += sizeof(PyObject *);
    if (at <= end) return at;
    PyErr_Format(PyExc_SystemError, "no field %s in the record", name);
    return -1;
}

/* Keys and values of dead records are kept for new ones, up to KD_KEPT_BYTES: from 1 KiB on malloc
 * searches and joins lists, which costs as much as copying the value. Only objects made here are kept, because they have the
 * room of their class, and only those that no one but the dead record refers to.
 *
 * A class is a range of sizes. A large byte string takes at most 63 bytes more than it says.
 */
#define KD_CLASSES 100
#define KD_BYTES_HEAD ((Py_ssize_t)offsetof(PyBytesObject, ob_sval) + 1) /* with the zero at the end */
#define KD_MOST_ROOM 4096
#define KD_KEPT_BYTES (1 << 20)

static PyObject *kd_spare[KD_CLASSES]; /* of each class one; its first field leads to the next */
static Py_ssize_t kd_spare_bytes = 0, kd_key_at, kd_value_at, kd_is_own_at;
static destructor kd_dealloc_record;

/* The class of a byte string; its room is rounded up to that of all in it. pymalloc gives small ones in steps of 16. */
static inline int kd_class(Py_ssize_t *room) {
    Py_ssize_t all = *room + KD_BYTES_HEAD;
    if (all <= 512) {
        all = (all + 15) & ~(Py_ssize_t)15;
        *room = all - KD_BYTES_HEAD;
        return (int)(all >> 4);
    }
    all = (all + 63) & ~(Py_ssize_t)63;
    *room = all - KD_BYTES_HEAD;
    return (int)(32 + ((all - 512) >> 6));
}

/* The same as PyBytes_FromStringAndSize. */
static inline PyObject *kd_bytes(const unsigned char *data, Py_ssize_t size) {
#if KD_KEPT
    if (size > 1 && size <= KD_MOST_ROOM - 64) {
        Py_ssize_t room = size;
        int place = kd_class(&room);
        PyObject *bytes = kd_spare[place];
        if (bytes) {
            kd_spare[place] = *(PyObject **)bytes;
            kd_spare_bytes -= room;
            (void)PyObject_InitVar((PyVarObject *)bytes, &PyBytes_Type, size);
        } else {
            if (!(bytes = PyBytes_FromStringAndSize(NULL, room))) return NULL;
            Py_SET_SIZE((PyVarObject *)bytes, size);
        }
        _Py_COMP_DIAG_PUSH
        _Py_COMP_DIAG_IGNORE_DEPR_DECLS
        ((PyBytesObject *)bytes)->ob_shash = -1; /* as long as it was not asked for */
        _Py_COMP_DIAG_POP
        memcpy(PyBytes_AS_STRING(bytes), data, (size_t)size);
        PyBytes_AS_STRING(bytes)[size] = 0;
        return bytes;
    }
#endif
    return PyBytes_FromStringAndSize((const char *)data, size);
}

#if KD_KEPT
static inline void kd_keep(PyObject **field) {
    PyObject *bytes = *field;
    Py_ssize_t room;
    int place;
    if (!bytes || Py_REFCNT(bytes) != 1 || !PyBytes_CheckExact(bytes)) return;
    room = PyBytes_GET_SIZE(bytes);
    if (room <= 1 || room > KD_MOST_ROOM - 64) return;
    place = kd_class(&room);
    if (kd_spare_bytes + room > KD_KEPT_BYTES) return;
    *(PyObject **)bytes = kd_spare[place];
    kd_spare[place] = bytes;
    kd_spare_bytes += room;
    *field = NULL;
}

static void kd_dealloc(PyObject *record) {
    if (*(int *)((char *)record + kd_is_own_at)) {
        kd_keep((PyObject **)((char *)record + kd_key_at));
        kd_keep((PyObject **)((char *)record + kd_value_at));
    }
    kd_dealloc_record(record);
}
#endif

/* Keep the keys and values of records whose flag is set; it is at `is_own` in the example. */
static int kd_keep_bytes(PyObject *example, PyObject *key, PyObject *value, void *is_own) {
#if KD_KEPT
    kd_key_at = kd_place(example, "key", key);
    kd_value_at = kd_place(example, "value", value);
    if (kd_key_at < 0 || kd_value_at < 0) return -1;
    kd_is_own_at = (char *)is_own - (char *)example;
    kd_dealloc_record = Py_TYPE(example)->tp_dealloc;
    Py_TYPE(example)->tp_dealloc = kd_dealloc;
#else
    (void)example, (void)key, (void)value, (void)is_own;
#endif
    return 0;
}

static void kd_allocate_untracked(PyObject *type) {
    ((PyTypeObject *)type)->tp_alloc = kd_alloc_untracked;
    ((PyTypeObject *)type)->tp_free = kd_free_untracked;
}

/* A read-only member in place of Cython's getter: the interpreter (3.11 and later) reads such slots inline. */
static int kd_add_slot(PyObject *example, const char *name, PyObject *mark) {
    PyTypeObject *type = Py_TYPE(example);
    Py_ssize_t at = kd_place(example, name, mark);
    if (at < 0) return -1;
    PyMemberDef *member = PyMem_Calloc(2, sizeof(PyMemberDef)); /* lives as long as the type: for ever */
    if (!member) {
        PyErr_NoMemory();
        return -1;
    }
    member->name = name;
    member->type = T_OBJECT_EX;
    member->offset = at;
    member->flags = READONLY;
    PyObject *descriptor = PyDescr_NewMember(type, member);
    if (!descriptor) return -1;
    int result = PyDict_SetItemString(type->tp_dict, name, descriptor);
    Py_DECREF(descriptor);
    PyType_Modified(type);
    return result;
}

#endif
