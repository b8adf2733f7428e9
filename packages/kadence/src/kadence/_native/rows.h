/* Rows of Arrow columns, read in place; in C since every row passes here without the interpreter.
 *
 * Columns are untrusted: each number in them is compared with the memory that is there before it is used.
 */
#ifndef KADENCE_ROWS_H
#define KADENCE_ROWS_H

#include "frame.h"

#define KD_DAMAGED (-2)
#define KD_NAMELESS (-3)
#define KD_CROWDED (-4)

/* A column of large_binary: `count` strings from `start` on, over `bytes` bytes of data. */
typedef struct {
    const unsigned char *valid;
    const int64_t *ends;
    const unsigned char *data;
    int64_t start;
    int64_t count;
    int64_t bytes;
} kd_strings;

/* A column of numbers, 32 or 64 bits; or the ends of large lists. */
typedef struct {
    const unsigned char *valid;
    const void *data;
    int64_t start;
} kd_numbers;

/* most_headers: of one row. */
typedef struct {
    int64_t most_headers;
    kd_strings value;
    kd_strings key;
    kd_numbers lists;
    kd_strings names;
    kd_strings values;
    kd_numbers partitions;
    kd_numbers timestamps;
    kd_numbers topics;
} kd_rows;

static inline int kd_is_null(const unsigned char *valid, int64_t at) {
    return valid != NULL && !(valid[at >> 3] >> (at & 7) & 1);
}

/* The size of one string, and where it lies; -1 when null, KD_DAMAGED when it lies outside its column. */
static inline int64_t kd_string(const kd_strings *column, int64_t row, const unsigned char **data) {
    int64_t at = column->start + row;
    if (kd_is_null(column->valid, at)) return -1;
    int64_t begin = column->ends[at], end = column->ends[at + 1];
    if (begin < 0 || end < begin || end > column->bytes) return KD_DAMAGED;
    *data = column->data + begin;
    return end - begin;
}

/* The headers of a row. 0 when they lie outside their columns. */
static inline int kd_headers(const kd_rows *rows, int64_t row, int64_t *begin, int64_t *end) {
    *begin = *end = 0;
    if (rows->lists.data == NULL) return 1;
    int64_t at = rows->lists.start + row;
    if (kd_is_null(rows->lists.valid, at)) return 1;
    const int64_t *ends = (const int64_t *)rows->lists.data;
    *begin = ends[at];
    *end = ends[at + 1];
    return *begin >= 0 && *end >= *begin && *end <= rows->names.count;
}

/* Most bytes that a row takes in a batch, as send() estimates it; KD_DAMAGED, KD_NAMELESS for a header's name, or
 * KD_CROWDED for too many headers. */
static inline int64_t kd_estimate(const kd_rows *rows, int64_t row) {
    const unsigned char *data;
    int64_t begin, end, size, total = 21;
    if ((size = kd_string(&rows->value, row, &data)) == KD_DAMAGED) return KD_DAMAGED;
    total += size > 0 ? size : 0;
    if (rows->key.ends != NULL) {
        if ((size = kd_string(&rows->key, row, &data)) == KD_DAMAGED) return KD_DAMAGED;
        total += size > 0 ? size : 0;
    }
    if (!kd_headers(rows, row, &begin, &end)) return KD_DAMAGED;
    if (end - begin > rows->most_headers) return KD_CROWDED;
    for (int64_t i = begin; i < end; i++) {
        size = kd_string(&rows->names, i, &data);
        if (size < 0) return size == -1 ? KD_NAMELESS : KD_DAMAGED;
        /* Four bytes for each character: count the bytes of UTF-8 that begin one. */
        for (int64_t j = 0; j < size; j++) total += (data[j] & 0xc0) != 0x80 ? 4 : 0;
        if ((size = kd_string(&rows->values, i, &data)) == KD_DAMAGED) return KD_DAMAGED;
        total += 10 + (size > 0 ? size : 0);
    }
    return total;
}

/* Write a row's headers, `tail` bytes with their number; 0 when the columns have changed since they were measured. */
static inline int kd_put_headers(unsigned char *p, const kd_rows *rows, int64_t begin, int64_t end, int64_t tail) {
    const unsigned char *data = NULL;
    const unsigned char *stop = p + tail;
    int64_t size;
    p = kd_put(p, end - begin);
    for (int64_t i = begin; i < end; i++) {
        size = kd_string(&rows->names, i, &data);
        if (size < 0 || kd_width(size) + size > stop - p) return 0;
        p = kd_put_bytes(p, data, size);
        size = kd_string(&rows->values, i, &data);
        if (size == KD_DAMAGED || kd_width(size) + (size > 0 ? size : 0) > stop - p) return 0;
        p = kd_put_bytes(p, data, size);
    }
    return p == stop;
}

/* Add a row that was estimated before. As kd_add; KD_DAMAGED when the columns have changed since, and the frame is
 * unchanged: the owner of a column's memory may write to it at any time. */
static inline int kd_add_row(kd_frame *frame, const kd_rows *rows, int64_t row, long long now) {
    const unsigned char *key = NULL, *value = NULL, *data = NULL;
    int64_t begin, end, size, tail;
    long long timestamp = now;
    int64_t key_size = rows->key.ends != NULL ? kd_string(&rows->key, row, &key) : -1;
    int64_t value_size = kd_string(&rows->value, row, &value);
    kd_frame before = *frame;
    unsigned char *p;
    int done;
    if (rows->timestamps.data != NULL && !kd_is_null(rows->timestamps.valid, rows->timestamps.start + row))
        timestamp = ((const int64_t *)rows->timestamps.data)[rows->timestamps.start + row];
    if (key_size == KD_DAMAGED || value_size == KD_DAMAGED || !kd_headers(rows, row, &begin, &end) ||
        end - begin > rows->most_headers)
        return KD_DAMAGED;
    tail = kd_width(end - begin);
    for (int64_t i = begin; i < end; i++) {
        size = kd_string(&rows->names, i, &data);
        if (size < 0) return KD_DAMAGED;
        tail += kd_width(size) + size;
        size = kd_string(&rows->values, i, &data);
        if (size == KD_DAMAGED) return KD_DAMAGED;
        tail += kd_width(size) + (size > 0 ? size : 0);
    }
    done = kd_add(frame, timestamp, key, key_size, value, value_size, tail, &p);
    if (done > 0 && !kd_put_headers(p, rows, begin, end, tail)) {
        frame->used = before.used;
        frame->count = before.count;
        frame->base = before.base;
        frame->latest = before.latest;
        return KD_DAMAGED;
    }
    return done;
}

#endif
