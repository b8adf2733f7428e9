/* Which process this is: a library in C may fork without Python's knowledge. */
#ifndef KADENCE_PID_H
#define KADENCE_PID_H

#ifdef _WIN32
#include <process.h>
static inline long kd_process(void) { return (long)_getpid(); }
#else
#include <unistd.h>
static inline long kd_process(void) { return (long)getpid(); }
#endif

#endif
