/* Records written one after the other into memory that grows; in C because the encoder and the producer inline it.
 *
 * A record is measured before its first byte is written, and a frame changes only when all of it fits.
 */
#ifndef KADENCE_FRAME_H
#define KADENCE_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KD_FRAME_LIMIT 2147483647
#define KD_BATCH_HEADER 61

/* One batch so far: room for its header, and its records. `base` and `latest` are timestamps in ms, -1 before the first
 * record. Once it is sealed the memory stays where it is, and takes no more records. */
typedef struct {
    unsigned char *data;
    ptrdiff_t used; /* with the header, also before there is memory */
    ptrdiff_t room;
    int is_sealed;
    int count;
    long long base;
    long long latest;
} kd_frame;

/* Write a zig-zag number (32 and 64 bits look the same) and return the place after it. */
static inline unsigned char *kd_put(unsigned char *p, long long number) {
    unsigned long long raw = ((unsigned long long)number << 1) ^ (number < 0 ? ~0ULL : 0ULL);
    while (raw >= 0x80) {
        *p++ = (unsigned char)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (unsigned char)raw;
    return p;
}

/* Bytes that kd_put needs for a number. */
static inline ptrdiff_t kd_width(long long number) {
    unsigned long long raw = ((unsigned long long)number << 1) ^ (number < 0 ? ~0ULL : 0ULL);
    ptrdiff_t width = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        width++;
    }
    return width;
}

/* Write a length (-1: null) and the bytes, and return the place after them. */
static inline unsigned char *kd_put_bytes(unsigned char *p, const unsigned char *data, ptrdiff_t size) {
    p = kd_put(p, size);
    if (size > 0) {
        memcpy(p, data, (size_t)size);
        p += size;
    }
    return p;
}

/* Room for `more` bytes; 0 without memory. */
static inline int kd_reserve(kd_frame *frame, ptrdiff_t more) {
    if (frame->room - frame->used >= more) return 1;
    ptrdiff_t room = frame->room + frame->room / 2;
    if (room < frame->used + more) room = frame->used + more;
    if (room < 1024) room = 1024;
    unsigned char *data = (unsigned char *)realloc(frame->data, (size_t)room);
    if (data == NULL) return 0;
    frame->data = data;
    frame->room = room;
    return 1;
}

/* Add a record. `tail` is the size of its headers with their number; the caller writes them to `*headers` at once.
 * Returns 1; 0 without memory, -1 when the batch would pass 2 GiB or is sealed. */
static inline int kd_add(kd_frame *frame, long long timestamp, const unsigned char *key, ptrdiff_t key_size,
                         const unsigned char *value, ptrdiff_t value_size, ptrdiff_t tail,
                         unsigned char **headers) {
    /* A difference that does not fit 64 bits wraps, here as in every reader that adds it back. */
    long long base = frame->count ? frame->base : timestamp;
    long long delta = (long long)((unsigned long long)timestamp - (unsigned long long)base);
    ptrdiff_t size = 1 + kd_width(delta) + kd_width(frame->count) + tail;
    size += kd_width(key_size) + (key_size > 0 ? key_size : 0);
    size += kd_width(value_size) + (value_size > 0 ? value_size : 0);
    if (frame->is_sealed || size > KD_FRAME_LIMIT || frame->used + size + 5 > KD_FRAME_LIMIT) return -1;
    if (!kd_reserve(frame, size + 5)) return 0;
    unsigned char *p = kd_put(frame->data + frame->used, size);
    *p++ = 0;
    p = kd_put(p, delta);
    p = kd_put(p, frame->count);
    p = kd_put_bytes(p, key, key_size);
    p = kd_put_bytes(p, value, value_size);
    *headers = p;
    frame->used = (p - frame->data) + tail;
    if (frame->count == 0) frame->base = frame->latest = timestamp;
    else if (timestamp > frame->latest) frame->latest = timestamp;
    frame->count++;
    return 1;
}

/* Add a record without headers. */
static inline int kd_add_plain(kd_frame *frame, long long timestamp, const unsigned char *key, ptrdiff_t key_size,
                               const unsigned char *value, ptrdiff_t value_size) {
    unsigned char *headers;
    int done = kd_add(frame, timestamp, key, key_size, value, value_size, 1, &headers);
    if (done > 0) *headers = 0;
    return done;
}

#endif
