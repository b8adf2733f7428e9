/* The words of JSON (RFC 8259): blanks, texts, numbers, and values that are passed over.
 *
 * Every function takes a place and the end of the document, and returns the place behind what it read; NULL where it is
 * not JSON, or is something that json_rows.h leaves to others (half of a surrogate pair, a deeply nested value).
 */
#ifndef KADENCE_JSON_TEXT_H
#define KADENCE_JSON_TEXT_H

#include <stdint.h>
#include <string.h>

#define KD_JSON_DEPTH 64
/* Spark refuses longer ones. */
#define KD_JSON_NUMBER 1000
#define KD_JSON_NAME 50000

typedef const unsigned char *kd_at;

static inline kd_at kd_blanks(kd_at p, kd_at end) {
    /* Mostly there is none, or a single one. */
    while (p < end && *p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* Marks at those of eight bytes that end the plain part of a text: a quote, a backslash, a control character, not ASCII.
 * The lowest mark is right; a mark above it may come from a borrow. */
static inline uint64_t kd_special(uint64_t x) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = x ^ ones * '"', backslash = x ^ ones * '\\';
    return ((quote - ones) | (backslash - ones) | (x - ones * 0x20) | x) & high;
}

/* The number of bytes below the lowest mark. The low bytes come first: json_rows.py needs a little-endian machine. */
static inline size_t kd_below(uint64_t marks) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t lowest = (marks & (0 - marks)) >> 7;
    return (size_t)(((lowest - 1) & ones) * ones >> 56);
}

/* To the first byte of a text that is not plain ASCII, or the end. */
static inline kd_at kd_plain(kd_at p, kd_at end) {
    uint64_t x;
    while (end - p >= 8) {
        memcpy(&x, p, 8);
        if ((x = kd_special(x)) != 0) return p + kd_below(x);
        p += 8;
    }
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
    return p;
}

static inline int kd_hex(kd_at p, kd_at end, uint32_t *into) {
    if (end - p < 4) return 0;
    *into = 0;
    for (int i = 0; i < 4; i++) {
        unsigned c = p[i], lower = c | 0x20;
        if (c >= '0' && c <= '9') c -= '0';
        else if (lower >= 'a' && lower <= 'f') c = lower - 'a' + 10;
        else return 0;
        *into = *into << 4 | c;
    }
    return 1;
}

/* From behind a backslash: the character that is meant. */
static inline kd_at kd_escaped(kd_at p, kd_at end, uint32_t *into) {
    uint32_t low;
    if (p >= end) return NULL;
    switch (*p++) {
    case '"': *into = '"'; return p;
    case '\\': *into = '\\'; return p;
    case '/': *into = '/'; return p;
    case 'b': *into = '\b'; return p;
    case 'f': *into = '\f'; return p;
    case 'n': *into = '\n'; return p;
    case 'r': *into = '\r'; return p;
    case 't': *into = '\t'; return p;
    case 'u': break;
    default: return NULL;
    }
    if (!kd_hex(p, end, into)) return NULL;
    p += 4;
    if (*into < 0xd800 || *into > 0xdfff) return p;
    if (*into > 0xdbff || end - p < 6 || p[0] != '\\' || p[1] != 'u' || !kd_hex(p + 2, end, &low)) return NULL;
    if (low < 0xdc00 || low > 0xdfff) return NULL;
    *into = 0x10000 + ((*into - 0xd800) << 10) + (low - 0xdc00);
    return p + 6;
}

static inline unsigned char *kd_put_utf8(unsigned char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (unsigned char)c;
        return to;
    }
    if (c < 0x800) *to++ = (unsigned char)(0xc0 | c >> 6);
    else {
        if (c < 0x10000) *to++ = (unsigned char)(0xe0 | c >> 12);
        else {
            *to++ = (unsigned char)(0xf0 | c >> 18);
            *to++ = (unsigned char)(0x80 | (c >> 12 & 0x3f));
        }
        *to++ = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (unsigned char)(0x80 | (c & 0x3f));
    return to;
}

/* From behind the quote that opens a text to the one that closes it.
 *
 * has_escapes: set where a backslash is met. is_wide: set where a byte is not ASCII; such bytes are not checked here.
 */
static inline kd_at kd_text(kd_at p, kd_at end, int *has_escapes, int *is_wide) {
    uint32_t c;
    for (;;) {
        p = kd_plain(p, end);
        if (p >= end || *p < 0x20) return NULL;
        if (*p == '"') return p;
        if (*p == '\\') {
            *has_escapes = 1;
            if ((p = kd_escaped(p + 1, end, &c)) == NULL) return NULL;
        } else {
            *is_wide = 1;
            p++;
        }
    }
}

/* A number as it is written, without its value. is_whole: neither a fraction nor an exponent. */
static inline kd_at kd_number(kd_at p, kd_at end, int *is_whole) {
    kd_at begin = p;
    *is_whole = 1;
    if (p < end && *p == '-') p++;
    if (p >= end || *p < '0' || *p > '9') return NULL;
    if (*p++ != '0')
        while (p < end && *p >= '0' && *p <= '9') p++;
    if (p < end && *p == '.') {
        *is_whole = 0;
        if (++p >= end || *p < '0' || *p > '9') return NULL;
        while (p < end && *p >= '0' && *p <= '9') p++;
    }
    if (p < end && (*p | 0x20) == 'e') {
        *is_whole = 0;
        if (++p < end && (*p == '+' || *p == '-')) p++;
        if (p >= end || *p < '0' || *p > '9') return NULL;
        while (p < end && *p >= '0' && *p <= '9') p++;
    }
    return p - begin < KD_JSON_NUMBER ? p : NULL;
}

static inline kd_at kd_word(kd_at p, kd_at end, const char *word) {
    size_t size = strlen(word);
    return (size_t)(end - p) >= size && memcmp(p, word, size) == 0 ? p + size : NULL;
}

/* Any value, for which there is no column. */
static kd_at kd_pass_over(kd_at p, kd_at end, int *is_wide, int depth) {
    int ignored;
    if (p >= end || depth >= KD_JSON_DEPTH) return NULL;
    switch (*p) {
    case '"':
        p = kd_text(p + 1, end, &ignored, is_wide);
        return p == NULL ? NULL : p + 1;
    case 't': return kd_word(p, end, "true");
    case 'f': return kd_word(p, end, "false");
    case 'n': return kd_word(p, end, "null");
    case '{':
    case '[': break;
    default: return kd_number(p, end, &ignored);
    }
    int is_object = *p == '{';
    unsigned char close = is_object ? '}' : ']';
    p = kd_blanks(p + 1, end);
    if (p < end && *p == close) return p + 1;
    for (;;) {
        if (is_object) {
            kd_at name = p + 1;
            if (p >= end || *p != '"' || (p = kd_text(name, end, &ignored, is_wide)) == NULL) return NULL;
            if (p - name > KD_JSON_NAME) return NULL;
            p = kd_blanks(p + 1, end);
            if (p >= end || *p++ != ':') return NULL;
            p = kd_blanks(p, end);
        }
        if ((p = kd_pass_over(p, end, is_wide, depth + 1)) == NULL) return NULL;
        p = kd_blanks(p, end);
        if (p >= end) return NULL;
        if (*p == close) return p + 1;
        if (*p++ != ',') return NULL;
        p = kd_blanks(p, end);
    }
}

/* True if all of it is UTF-8 (RFC 3629). */
static inline int kd_is_utf8(kd_at p, kd_at end) {
    while (p < end) {
        unsigned c = *p++, more, least;
        if (c < 0x80) continue;
        if (c >= 0xc2 && c <= 0xdf) { more = 1; least = 0x80; c &= 0x1f; }
        else if (c >= 0xe0 && c <= 0xef) { more = 2; least = 0x800; c &= 0x0f; }
        else if (c >= 0xf0 && c <= 0xf4) { more = 3; least = 0x10000; c &= 0x07; }
        else return 0;
        if (end - p < (int)more) return 0;
        while (more--) {
            if ((*p & 0xc0) != 0x80) return 0;
            c = c << 6 | (*p++ & 0x3f);
        }
        if (c < least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    }
    return 1;
}

#endif
