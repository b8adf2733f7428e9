/* Two things about the record's type that Cython has no words for; called once, when its module is loaded. */
#ifndef KADENCE_RECORD_TYPE_H
#define KADENCE_RECORD_TYPE_H

#include <Python.h>
#include <structmember.h>
#include <string.h>

/* Allocation that leaves the object unknown to the cycle collector, which would otherwise walk over every record
 * an application holds, and that keeps some dead records for the next poll (500 by default). Measured together:
 * 82 ns a record become 67. Whoever stores an object that might lead back to the record tracks it.
 */
#ifdef Py_GIL_DISABLED
#define KD_KEPT 0 /* the list has no lock but the interpreter's */
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

static void kd_allocate_untracked(PyObject *type) {
    ((PyTypeObject *)type)->tp_alloc = kd_alloc_untracked;
    ((PyTypeObject *)type)->tp_free = kd_free_untracked;
}

/* A read-only member in place of Cython's getter: the interpreter (3.11 and later) reads such slots inline.
 * Cython keeps the layout to itself, so the place is found by looking for `mark` in an example that has it there. */
static int kd_add_slot(PyObject *example, const char *name, PyObject *mark) {
    PyTypeObject *type = Py_TYPE(example);
    Py_ssize_t at = sizeof(PyObject), end = type->tp_basicsize - (Py_ssize_t)sizeof(PyObject *);
    while (at <= end && memcmp((char *)example + at, &mark, sizeof mark)) at += sizeof(PyObject *);
    if (at > end) {
        PyErr_Format(PyExc_SystemError, "no field %s in the record", name);
        return -1;
    }
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
