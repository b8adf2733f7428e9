/* Zig-zag numbers of variable length, as record batches hold them; written in C because two modules inline them.
 *
 * Both readers return 1 and step over the number, or 0 when it is cut off by `end` or longer than its type allows.
 * The value is returned signed: unsigned, the length of a null (-1) would be 4294967295.
 */
#ifndef KADENCE_VARINT_H
#define KADENCE_VARINT_H

#include <stddef.h>
#include <stdint.h>

static inline int kd_varint(unsigned char **at, unsigned char *end, int *into) {
    const unsigned char *p = *at;
    if (p >= end) return 0;
    uint32_t byte = *p++, raw = byte & 0x7f;
    for (unsigned shift = 7; byte & 0x80; shift += 7) {
        if (p >= end || shift > 28) return 0;
        byte = *p++;
        if (shift == 28 && byte > 0x0f) return 0;
        raw |= (byte & 0x7f) << shift;
    }
    *into = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
    *at = (unsigned char *)p;
    return 1;
}

static inline int kd_varlong(unsigned char **at, unsigned char *end, long long *into) {
    const unsigned char *p = *at;
    if (p >= end) return 0;
    uint64_t byte = *p++, raw = byte & 0x7f;
    for (unsigned shift = 7; byte & 0x80; shift += 7) {
        if (p >= end || shift > 63) return 0;
        byte = *p++;
        if (shift == 63 && byte > 1) return 0;
        raw |= (byte & 0x7f) << shift;
    }
    *into = (int64_t)((raw >> 1) ^ ((uint64_t)0 - (raw & 1)));
    *at = (unsigned char *)p;
    return 1;
}

/* Have the processor bring the next record, which is likely to be as large, while this one is copied: by itself
 * it prefetches within one page only. Small records lie in few pages. */
static inline void kd_prefetch(const unsigned char *at, ptrdiff_t size) {
#if defined(__GNUC__) || defined(__clang__)
    if (size < 256) return;
    for (ptrdiff_t i = 0; i < size && i < 1024; i += 64) __builtin_prefetch(at + i);
#else
    (void)at, (void)size;
#endif
}

#endif
