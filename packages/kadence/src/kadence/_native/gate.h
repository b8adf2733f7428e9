/* Lets two threads write on one connection: the network thread and the native thread (native_heartbeat.h).
 *
 * The lock is held for one call that cannot block, by threads that wait for nothing meanwhile: neither for the
 * GIL nor for the other thread's lock. So a thread that holds the GIL may take it, too.
 */
#ifndef KADENCE_GATE_H
#define KADENCE_GATE_H

#include <pthread.h>
#include <stddef.h>

typedef struct {
    pthread_mutex_t lock;
    int is_inside; /* the network thread has written a part of a frame, or has to repeat a write: the native thread waits */
    int is_shut; /* Python's ssl is at work on the session: the native thread keeps off it */
    int native_sent; /* frames of the native thread that the network thread has not counted: it must, before it writes */
    unsigned char *rest; /* what is left of a frame of the native thread: it goes out before anything else; NULL: nothing */
    size_t rest_length;
} kd_gate;

#endif
