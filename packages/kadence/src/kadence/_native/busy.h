/* A flag that one thread at a time may raise. With the interpreter's lock it needs no atomic instruction. */
#ifndef KADENCE_BUSY_H
#define KADENCE_BUSY_H

#include <Python.h>

/* Raise the flag. Returns whether it was raised before. */
static inline int kd_take(int *flag) {
#ifdef Py_GIL_DISABLED
    return _Py_atomic_exchange_int(flag, 1);
#else
    int was = *flag;
    *flag = 1;
    return was;
#endif
}

static inline void kd_let_go(int *flag) {
#ifdef Py_GIL_DISABLED
    _Py_atomic_store_int_release(flag, 0);
#else
    *flag = 0;
#endif
}

#endif
