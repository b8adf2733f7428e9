/* JSON's numbers and texts as Arrow's fixed values: whole numbers, floats, decimals, dates and times.
 *
 * Each returns 0 where the value is out of range, or is written in a way that json_rows.h leaves to others.
 */
#ifndef KADENCE_JSON_NUMBERS_H
#define KADENCE_JSON_NUMBERS_H

#include <Python.h>
#include <float.h>
#include <math.h>

#include "json_text.h"

#define KD_ODD_DIGITS 128

static inline int kd_integer(kd_at p, kd_at end, int bits, int64_t *into) {
    int minus = *p == '-';
    uint64_t found = 0, most = (uint64_t)1 << (bits - 1);
    p += minus;
    if (end - p > 19) return 0;
    for (; p < end; p++) found = found * 10 + (unsigned)(*p - '0');
    if (found > (minus ? most : most - 1)) return 0;
    *into = (int64_t)(minus ? 0 - found : found);
    return 1;
}

#if FLT_EVAL_METHOD == 0
/* A number as programs write most of them, nine digits and six behind the point, read while its end is looked for: the
 * nearest double, and the place behind it; NULL: it is another one, or what follows is. */
static inline kd_at kd_short_double(kd_at p, kd_at end, double *into) {
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
    int minus = *p == '-';
    int64_t found = 0;
    kd_at begin = p += minus, point;
    while (p < end && *p >= '0' && *p <= '9' && p - begin < 9) found = found * 10 + (*p++ - '0');
    /* Whole numbers have no zero below zero: they are read elsewhere. */
    if (p == begin || p >= end || *p != '.' || (*begin == '0' && p - begin > 1)) return NULL;
    point = ++p;
    while (p < end && *p >= '0' && *p <= '9' && p - point < 6) found = found * 10 + (*p++ - '0');
    if (p == point || p >= end || (*p != ',' && *p != '}')) return NULL;
    /* Both are exact, so one division rounds once. */
    double exact = (double)found / powers[p - point];
    *into = minus ? -exact : exact;
    return p;
}
#endif

/* The nearest double. Up to 2^53 times or through a power of ten that is exact, one operation rounds once, so it is
 * right (Clinger 1990); other numbers are for CPython's strtod, which needs the interpreter: `*held` is restored. */
static inline int kd_double(kd_at p, kd_at end, PyThreadState **held, double *into) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    kd_at start = p;
    int minus = *p == '-', digits = 0, power = 0, written = 0, below = 0;
    /* A whole number has no zero below zero. */
    if (end - p == 2 && p[0] == '-' && p[1] == '0') p++, minus = 0;
    uint64_t found = 0;
    for (p += minus; p < end && digits <= 19; p++) {
        if (*p == '.') {
            below = 1;
            continue;
        }
        if (*p < '0' || *p > '9') break;
        found = found * 10 + (unsigned)(*p - '0');
        digits += found != 0;
        power -= below;
    }
    if (p < end && digits <= 19) {
        int less = *++p == '-';
        if (*p == '-' || *p == '+') p++;
        for (; p < end && written < 10000; p++) written = written * 10 + (*p - '0');
        power += less ? -written : written;
    }
#if FLT_EVAL_METHOD == 0
    if (digits <= 19 && found <= (uint64_t)1 << 53 && power >= -22 && power <= 22) {
        double exact = (double)found;
        exact = power < 0 ? exact / powers[-power] : exact * powers[power];
        *into = minus ? -exact : exact;
        return 1;
    }
#endif
    char odd[KD_ODD_DIGITS];
    char *behind;
    if (end - start >= KD_ODD_DIGITS) return 0;
    memcpy(odd, start, (size_t)(end - start));
    odd[end - start] = 0;
    if (*held != NULL) {
        PyEval_RestoreThread(*held);
        *held = NULL;
    }
    *into = PyOS_string_to_double(odd, &behind, NULL);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return behind == odd + (end - start) && isfinite(*into);
}

/* The nearest float, unless the double on the way lies in the middle of two, where rounding twice may be wrong. */
static inline int kd_float(double from, float *into) {
    uint64_t bits;
    memcpy(&bits, &from, 8);
    *into = (float)from;
    if (from == 0) return 1;
    return (bits & 0x1fffffff) != 0x10000000 && isfinite(*into) && fabsf(*into) >= FLT_MIN;
}

/* A decimal without an exponent, as a multiple of ten to the power of -scale. */
static inline int kd_decimal(kd_at p, kd_at end, int precision, int scale, int64_t *into) {
    int minus = *p == '-', below = 0, point = 0, digits = 0;
    uint64_t found = 0;
    for (p += minus; p < end; p++) {
        if (*p == '.') {
            point = 1;
            continue;
        }
        if (*p < '0' || *p > '9') return 0;
        found = found * 10 + (unsigned)(*p - '0');
        digits += found != 0;
        below += point;
        if (digits > 18) return 0;
    }
    if (below > scale) return 0;
    for (; below < scale; below++) {
        found *= 10;
        digits += found != 0;
        if (digits > 18) return 0;
    }
    if (digits > precision) return 0;
    *into = minus ? -(int64_t)found : (int64_t)found;
    return 1;
}

static inline int kd_two_digits(kd_at p, int most, int *into) {
    if (p[0] < '0' || p[0] > '9' || p[1] < '0' || p[1] > '9') return 0;
    *into = (p[0] - '0') * 10 + (p[1] - '0');
    return *into <= most;
}

/* ``YYYY-MM-DD``, ten bytes, as days since 1970; years from 1 to 9999. */
static inline int kd_date(kd_at p, int64_t *days) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int century, year, month, day;
    if (!kd_two_digits(p, 99, &century) || !kd_two_digits(p + 2, 99, &year) || p[4] != '-' || p[7] != '-') return 0;
    if (!kd_two_digits(p + 5, 12, &month) || !kd_two_digits(p + 8, 31, &day)) return 0;
    int leaps = year % 4 == 0 && (year != 0 || century % 4 == 0);
    /* Centuries that have begun before this year, beside the first. */
    int centuries = year == 0 ? century - 1 : century;
    year += century * 100;
    if (year == 0 || month == 0 || day == 0 || day > lengths[month - 1] + (month == 2 && leaps)) return 0;
    int leap_days = (year - 1) / 4 - centuries + centuries / 4 + (month > 2 && leaps);
    *days = year * 365 + leap_days + before[month - 1] + day - 719528;
    return 1;
}

/* The offsets of local times from UTC, in seconds: offsets[i] from starts[i] to starts[i + 1], which are seconds of
 * local time since 1970. count: of the offsets; 0: none are known. last: the index of the last one that was used. */
typedef struct {
    const int64_t *starts;
    const int32_t *offsets;
    int count, last;
} kd_zone;

static inline int kd_to_utc(kd_zone *zone, int64_t *seconds) {
    int from = 0, to = zone->count, at = zone->last;
    if (to == 0 || *seconds < zone->starts[0] || *seconds >= zone->starts[to]) return 0;
    if (*seconds < zone->starts[at] || *seconds >= zone->starts[at + 1]) {
        while (to - from > 1) {
            at = (from + to) / 2;
            if (*seconds < zone->starts[at]) to = at;
            else from = at;
        }
        zone->last = at = from;
    }
    *seconds -= zone->offsets[at];
    return 1;
}

/* ``YYYY-MM-DD``, ``T`` or a blank, ``hh:mm:ss``, a fraction, and nothing, ``Z`` or ``+hh:mm``, as microseconds since
 * 1970. Without a zone it is `zone`'s; a column without one (NULL) takes no text that has one. */
static inline int kd_time(kd_at p, kd_at end, kd_zone *zone, int64_t *micros) {
    int hour, minute, second, far, near;
    int64_t days, seconds, fraction = 0, unit = 1000000;
    if (end - p < 19 || !kd_date(p, &days) || (p[10] != 'T' && p[10] != ' ') || p[13] != ':' || p[16] != ':') return 0;
    if (!kd_two_digits(p + 11, 23, &hour) || !kd_two_digits(p + 14, 59, &minute) || !kd_two_digits(p + 17, 59, &second))
        return 0;
    seconds = days * 86400 + hour * 3600 + minute * 60 + second;
    p += 19;
    if (p < end && *p == '.') {
        kd_at first = ++p;
        /* Digits below a microsecond are cut off. */
        for (; p < end && *p >= '0' && *p <= '9'; p++) fraction += (unit /= 10) * (*p - '0');
        if (p == first) return 0;
    }
    if (p == end) {
        if (zone != NULL && !kd_to_utc(zone, &seconds)) return 0;
    } else if (zone == NULL) return 0;
    else if (end - p != 1 || *p != 'Z') {
        if (end - p != 6 || (*p != '+' && *p != '-') || p[3] != ':') return 0;
        if (!kd_two_digits(p + 1, 14, &far) || !kd_two_digits(p + 4, 59, &near)) return 0;
        int64_t ahead = far * 3600 + near * 60;
        seconds += *p == '-' ? ahead : -ahead;
    }
    *micros = seconds * 1000000 + fraction;
    return 1;
}

/* A number in a column of times is whole seconds since 1970; years from 1 to 9999. */
static inline int kd_seconds(kd_at p, kd_at end, int64_t *micros) {
    if (!kd_integer(p, end, 64, micros) || *micros < -62135596800 || *micros > 253402300799) return 0;
    *micros *= 1000000;
    return 1;
}

#endif
