/* The poll for which a ShareFetch goes out again and again (intake.h): how long it waits, and for how many records.
 *
 * The application's thread writes it, and the network thread reads it while it waits without the interpreter. So a poll
 * that follows another one goes on with the fetches of that one, and no thread changes for it.
 *
 * The lock guards both numbers. It is held for a copy.
 */
#ifndef KADENCE_POLL_WAIT_H
#define KADENCE_POLL_WAIT_H

#include <pthread.h>
#include <stdint.h>

typedef struct {
    pthread_mutex_t lock;
    int64_t until_ms; /* 0: no poll waits */
    int64_t count;
} kd_poll_wait;

static void kd_poll_wait_init(kd_poll_wait *wait) {
    pthread_mutex_init(&wait->lock, NULL);
    wait->until_ms = wait->count = 0;
}

/* A poll waits until then for so many records; until 0: it is over. */
static void kd_poll_wait_set(kd_poll_wait *wait, int64_t until_ms, int64_t count) {
    pthread_mutex_lock(&wait->lock);
    wait->until_ms = until_ms;
    wait->count = count;
    pthread_mutex_unlock(&wait->lock);
}

/* For how much longer (ms) a poll waits for so many records; 0: none does. */
static int64_t kd_poll_wait_left(kd_poll_wait *wait, int64_t now_ms, int64_t count) {
    int64_t left = 0;
    pthread_mutex_lock(&wait->lock);
    if (wait->count == count && wait->until_ms > now_ms) left = wait->until_ms - now_ms;
    pthread_mutex_unlock(&wait->lock);
    return left;
}

#endif
