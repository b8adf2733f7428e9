/* The time of a record, without a call of Python for each. */
#ifndef KADENCE_WALL_H
#define KADENCE_WALL_H

#include <time.h>

/* Milliseconds since 1970, as in kadence.clock.wall_ms; -1 where the system does not report them. */
static inline long long kd_wall_ms(void) {
#ifdef CLOCK_REALTIME
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
#else
    return -1;
#endif
}

#endif
