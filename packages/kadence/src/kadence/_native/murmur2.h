/* MurmurHash2 by Austin Appleby, 32 bits, with Kafka's seed: which partition a key belongs to. */
#ifndef KADENCE_MURMUR2_H
#define KADENCE_MURMUR2_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t kd_murmur2(const unsigned char *data, ptrdiff_t size) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
    }
    if (size > 0) {
        if (size > 2) h ^= (uint32_t)data[2] << 16;
        if (size > 1) h ^= (uint32_t)data[1] << 8;
        h = (h ^ data[0]) * m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

#endif
