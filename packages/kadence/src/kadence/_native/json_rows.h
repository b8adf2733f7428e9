/* JSON documents → columns in Arrow's layout, in one pass and without the interpreter.
 *
 * A record is taken or refused as a whole. A refusal costs nothing but time: the reader in Python, which decides what
 * a document means, reads it again (spark/decode/json_values.py, reading/json_values.py). So this one takes only what it
 * is certain of, and refuses the rest: a name written with escapes or twice, a value of another type, a time in a rarer form,
 * text that is not JSON at all.
 */
#ifndef KADENCE_JSON_ROWS_H
#define KADENCE_JSON_ROWS_H

#include <stdlib.h>

#include "json_numbers.h"

/* Inlined by force: compilers find it too large, and a call for each value costs a quarter more. */
#ifdef _MSC_VER
#define KD_INSIDE static __forceinline
#else
#define KD_INSIDE static inline __attribute__((always_inline))
#endif

enum {
    KD_JSON_BOOL, KD_JSON_INT, KD_JSON_FLOAT, KD_JSON_DOUBLE, KD_JSON_DECIMAL, KD_JSON_DATE, KD_JSON_TIME,
    KD_JSON_STRING, KD_JSON_LIST, KD_JSON_STRUCT
};

typedef struct {
    unsigned char *data;
    size_t size, room;
} kd_bytes;

/* A column, and the columns inside of it. A node's memory is kept from batch to batch.
 *
 * width: bytes of a fixed value (a bool has one here); 0 for the rest. scale, precision: of a decimal. is_zoned: of a
 * time. ends: of texts and lists. nulls: int32, the rows that are null, ascending. seen: the object that had it last.
 * next: of a struct, the member after the one that came last. begin, mask: the name's first eight bytes, and which of
 * them there are; last: its last eight, where it has more.
 */
typedef struct kd_node {
    int kind, width, scale, precision, is_zoned, count, next;
    const char *name;
    size_t name_size;
    struct kd_node *children;
    kd_bytes values, ends, nulls;
    int32_t length;
    uint64_t seen, begin, mask, last;
} kd_node;

/* objects: how many were begun. zone: of times without one. held: what gives the interpreter back, NULL while it is here.
 * keeps_all: nothing may be left out. A document with a member for which there is no column is refused, and a column of texts
 * takes any number as it is written; else the member is passed over, and numbers are left to the
 * reader in Python, which writes them as Java does. */
typedef struct {
    uint64_t objects;
    kd_zone zone;
    PyThreadState *held;
    int keeps_all, is_wide, is_out_of_memory;
} kd_reading;

static inline int kd_room(kd_reading *reading, kd_bytes *bytes, size_t more) {
    if (bytes->room - bytes->size >= more) return 1;
    size_t room = bytes->size + more + bytes->room / 2 + 256;
    unsigned char *data = (unsigned char *)realloc(bytes->data, room);
    if (data == NULL) {
        reading->is_out_of_memory = 1;
        return 0;
    }
    bytes->data = data;
    bytes->room = room;
    return 1;
}

static inline int kd_put_value(kd_reading *reading, kd_bytes *bytes, const void *value, size_t size) {
    if (!kd_room(reading, bytes, size)) return 0;
    /* Zero bytes may have no address: memcpy() takes no NULL, not even for 0 bytes. */
    if (size > 0) memcpy(bytes->data + bytes->size, value, size);
    bytes->size += size;
    return 1;
}

/* After a text's bytes or a list's elements: where they end. Ends are below 2^31, since those of the documents are. */
static inline int kd_put_end(kd_reading *reading, kd_node *node) {
    int32_t end = node->kind == KD_JSON_LIST ? node->children->length : (int32_t)node->values.size;
    node->length++;
    return kd_put_value(reading, &node->ends, &end, 4);
}

static int kd_put_null(kd_reading *reading, kd_node *node) {
    static const unsigned char zeros[16] = {0};
    if (!kd_put_value(reading, &node->nulls, &node->length, 4)) return 0;
    if (node->kind == KD_JSON_STRING || node->kind == KD_JSON_LIST) return kd_put_end(reading, node);
    node->length++;
    if (node->kind != KD_JSON_STRUCT) return kd_put_value(reading, &node->values, zeros, (size_t)node->width);
    for (int i = 0; i < node->count; i++)
        if (!kd_put_null(reading, node->children + i)) return 0;
    return 1;
}

/* Give up the rows from `length` on. */
static void kd_cut(kd_node *node, int32_t length) {
    int32_t begin = 0;
    if (node->length > length) node->length = length;
    while (node->nulls.size >= 4 && ((int32_t *)node->nulls.data)[node->nulls.size / 4 - 1] >= length) node->nulls.size -= 4;
    if (node->kind == KD_JSON_STRING || node->kind == KD_JSON_LIST) {
        node->ends.size = (size_t)length * 4;
        if (length > 0) begin = ((int32_t *)node->ends.data)[length - 1];
        if (node->kind == KD_JSON_STRING) node->values.size = (size_t)begin;
        else kd_cut(node->children, begin);
    } else if (node->kind == KD_JSON_STRUCT) {
        for (int i = 0; i < node->count; i++) kd_cut(node->children + i, length);
    } else node->values.size = (size_t)length * (size_t)node->width;
}

/* A text without escapes. */
static inline int kd_put_text(kd_reading *reading, kd_bytes *bytes, kd_at p, size_t size, kd_at end) {
    /* A size that the compiler knows is one instruction; bytes copied from after a short text are overwritten. */
    if (size > 16 || end - p < 16) return kd_put_value(reading, bytes, p, size);
    if (!kd_room(reading, bytes, 16)) return 0;
    memcpy(bytes->data + bytes->size, p, 16);
    bytes->size += size;
    return 1;
}

/* A text with escapes, from after its quote to the one that closes it. The result is never longer. */
static inline int kd_put_escaped(kd_reading *reading, kd_bytes *bytes, kd_at p, kd_at end) {
    uint32_t c = 0;
    if (!kd_room(reading, bytes, (size_t)(end - p))) return 0;
    unsigned char *to = bytes->data + bytes->size;
    while (p < end) {
        if (*p != '\\') *to++ = *p++;
        else {
            p = kd_escaped(p + 1, end, &c);
            to = kd_put_utf8(to, c);
        }
    }
    bytes->size = (size_t)(to - bytes->data);
    return 1;
}

/* A value that is written as a text. */
KD_INSIDE kd_at kd_of_text(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    int has_escapes = 0, done;
    int64_t number;
    int32_t days;
    kd_at close = kd_text(++p, end, &has_escapes, &reading->is_wide);
    if (close == NULL) return NULL;
    if (node->kind == KD_JSON_STRING) {
        done = has_escapes ? kd_put_escaped(reading, &node->values, p, close)
                           : kd_put_text(reading, &node->values, p, (size_t)(close - p), end);
        return done && kd_put_end(reading, node) ? close + 1 : NULL;
    }
    if (has_escapes) return NULL;
    if (node->kind == KD_JSON_TIME) {
        if (!kd_time(p, close, node->is_zoned ? &reading->zone : NULL, &number)) return NULL;
        done = kd_put_value(reading, &node->values, &number, 8);
    } else if (node->kind == KD_JSON_DATE) {
        if (close - p != 10 || !kd_date(p, &number)) return NULL;
        days = (int32_t)number;
        done = kd_put_value(reading, &node->values, &days, 4);
    } else return NULL;
    node->length++;
    return done ? close + 1 : NULL;
}

/* The low bytes come first: json_rows.py asks for a machine that has it so. */
static inline int kd_put_integer(kd_reading *reading, kd_node *node, int64_t number) {
    node->length++;
    /* A size that the compiler knows is one instruction. */
    if (node->width == 4) return kd_put_value(reading, &node->values, &number, 4);
    if (node->width == 8) return kd_put_value(reading, &node->values, &number, 8);
    return kd_put_value(reading, &node->values, &number, (size_t)node->width);
}

/* A value as most are written, read while its end is looked for; NULL: it is another one, and nothing is put. */
KD_INSIDE kd_at kd_of_short_number(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    kd_at digit = p;
    int64_t number = 0;
    double real;
    if (node->kind == KD_JSON_INT && node->width >= 4 && *p >= '1' && *p <= '9') {
        while (digit < end && digit - p < 9 && *digit >= '0' && *digit <= '9') number = number * 10 + (*digit++ - '0');
        if (digit < end && (*digit == ',' || *digit == '}') && kd_put_integer(reading, node, number)) return digit;
    }
#if FLT_EVAL_METHOD == 0
    if (node->kind == KD_JSON_DOUBLE && (digit = kd_short_double(p, end, &real)) != NULL) {
        if (!kd_put_value(reading, &node->values, &real, 8)) return NULL;
        node->length++;
        return digit;
    }
#endif
    return NULL;
}

/* A value that is written as a number; a column of texts takes a whole one, or any (keeps_all), as it is written. */
KD_INSIDE kd_at kd_of_number(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    int is_whole, done = 0;
    int64_t wide[2];
    double real;
    float less;
    kd_at short_one = kd_of_short_number(reading, node, p, end);
    if (short_one != NULL) return short_one;
    kd_at close = kd_number(p, end, &is_whole);
    if (close == NULL) return NULL;
    switch (node->kind) {
    case KD_JSON_STRING:
        if (!reading->keeps_all && (!is_whole || (p[0] == '-' && p[1] == '0'))) return NULL;
        done = kd_put_value(reading, &node->values, p, (size_t)(close - p)) && kd_put_end(reading, node);
        return done ? close : NULL;
    case KD_JSON_INT:
        if (!is_whole || !kd_integer(p, close, node->width * 8, wide)) return NULL;
        return kd_put_integer(reading, node, wide[0]) ? close : NULL;
    case KD_JSON_DOUBLE:
        if (!kd_double(p, close, &reading->held, &real)) return NULL;
        done = kd_put_value(reading, &node->values, &real, 8);
        break;
    case KD_JSON_FLOAT:
        if (!kd_double(p, close, &reading->held, &real) || !kd_float(real, &less)) return NULL;
        done = kd_put_value(reading, &node->values, &less, 4);
        break;
    case KD_JSON_DECIMAL:
        if (!kd_decimal(p, close, node->precision, node->scale, wide)) return NULL;
        wide[1] = wide[0] < 0 ? -1 : 0;
        done = kd_put_value(reading, &node->values, wide, 16);
        break;
    case KD_JSON_TIME:
        if (!is_whole || !node->is_zoned || !kd_seconds(p, close, wide)) return NULL;
        done = kd_put_value(reading, &node->values, wide, 8);
        break;
    default: return NULL;
    }
    node->length++;
    return done ? close : NULL;
}

/* true or false; a column of texts takes the word. */
KD_INSIDE kd_at kd_of_bool(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    unsigned char is_true = *p == 't';
    kd_at close = kd_word(p, end, is_true ? "true" : "false");
    int done;
    if (close == NULL) return NULL;
    if (node->kind == KD_JSON_STRING)
        done = kd_put_value(reading, &node->values, p, (size_t)(close - p)) && kd_put_end(reading, node);
    else if (node->kind == KD_JSON_BOOL) {
        node->length++;
        done = kd_put_value(reading, &node->values, &is_true, 1);
    } else return NULL;
    return done ? close : NULL;
}

static kd_at kd_list(kd_reading *reading, kd_node *node, kd_at p, kd_at end);
static kd_at kd_object(kd_reading *reading, kd_node *node, kd_at p, kd_at end);

/* One value of a column. The depth of the columns bounds the recursion, whatever the document. */
KD_INSIDE kd_at kd_value(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    if (p >= end) return NULL;
    switch (*p) {
    case '"': return kd_of_text(reading, node, p, end);
    case 'n': return (p = kd_word(p, end, "null")) != NULL && kd_put_null(reading, node) ? p : NULL;
    case 't':
    case 'f': return kd_of_bool(reading, node, p, end);
    case '[': return node->kind == KD_JSON_LIST ? kd_list(reading, node, p, end) : NULL;
    case '{': return node->kind == KD_JSON_STRUCT ? kd_object(reading, node, p, end) : NULL;
    default: return kd_of_number(reading, node, p, end);
    }
}

static kd_at kd_list(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    p = kd_blanks(p + 1, end);
    if (p < end && *p == ']') return kd_put_end(reading, node) ? p + 1 : NULL;
    for (;;) {
        if ((p = kd_value(reading, node->children, p, end)) == NULL) return NULL;
        p = kd_blanks(p, end);
        if (p >= end) return NULL;
        if (*p == ']') return kd_put_end(reading, node) ? p + 1 : NULL;
        if (*p++ != ',') return NULL;
        p = kd_blanks(p, end);
    }
}

/* Keep what names are compared by first. */
static inline void kd_prepare_name(kd_node *node) {
    size_t size = node->name_size < 8 ? node->name_size : 8;
    memcpy(&node->begin, node->name, size);
    memset(&node->mask, 0xff, size);
    if (node->name_size > 8) memcpy(&node->last, node->name + node->name_size - 8, 8);
}

static inline int kd_is_name(const kd_node *node, kd_at p, kd_at end) {
    uint64_t begin, last;
    size_t size = node->name_size;
    if ((size_t)(end - p) <= size || p[size] != '"') return 0;
    if (end - p < 8) return memcmp(p, node->name, size) == 0;
    memcpy(&begin, p, 8);
    if (((begin ^ node->begin) & node->mask) != 0) return 0;
    if (size <= 8) return 1;
    memcpy(&last, p + size - 8, 8);
    return last == node->last && (size <= 16 || memcmp(p + 8, node->name + 8, size - 16) == 0);
}

/* The member of a name, from after its quote; NULL for none. Most records of a topic have their members in the same order. */
static inline kd_node *kd_member(kd_node *node, kd_at p, kd_at end) {
    int at = node->next;
    for (int i = 0; i < node->count; i++, at++) {
        if (at >= node->count) at = 0;
        if (kd_is_name(node->children + at, p, end)) {
            node->next = at + 1;
            return node->children + at;
        }
    }
    return NULL;
}

static kd_at kd_object(kd_reading *reading, kd_node *node, kd_at p, kd_at end) {
    uint64_t self = ++reading->objects;
    int found = 0;
    node->next = 0;
    p = kd_blanks(p + 1, end);
    if (p < end && *p == '}') p++;
    else
        for (;;) {
            int has_escapes = 0;
            if (p >= end || *p++ != '"') return NULL;
            kd_node *member = kd_member(node, p, end);
            if (member != NULL) {
                p += member->name_size;
                if (member->seen == self) return NULL;
                member->seen = self;
                found++;
            } else {
                if (reading->keeps_all) return NULL;
                kd_at name = p;
                p = kd_text(p, end, &has_escapes, &reading->is_wide);
                if (p == NULL || has_escapes || p - name > KD_JSON_NAME) return NULL;
            }
            p = kd_blanks(p + 1, end);
            if (p >= end || *p++ != ':') return NULL;
            p = kd_blanks(p, end);
            p = member != NULL ? kd_value(reading, member, p, end) : kd_pass_over(p, end, &reading->is_wide, 0);
            if (p == NULL) return NULL;
            p = kd_blanks(p, end);
            if (p >= end) return NULL;
            if (*p == '}') {
                p++;
                break;
            }
            if (*p++ != ',') return NULL;
            p = kd_blanks(p, end);
        }
    for (int i = 0; found < node->count && i < node->count; i++)
        if (node->children[i].seen != self) {
            if (!kd_put_null(reading, node->children + i)) return NULL;
            found++;
        }
    node->length++;
    return p;
}

/* One document, which becomes a row. 0: it is refused, and the row is null. */
static inline int kd_document(kd_reading *reading, kd_node *root, kd_at p, kd_at end) {
    kd_at begin = p;
    int32_t row = root->length;
    reading->is_wide = 0;
    p = kd_blanks(p, end);
    if (p < end && *p == '{' && (p = kd_object(reading, root, p, end)) != NULL && kd_blanks(p, end) == end &&
        (!reading->is_wide || kd_is_utf8(begin, end)))
        return 1;
    kd_cut(root, row);
    kd_put_null(reading, root);
    return 0;
}

/* True if offsets go up from row to row, and stay within `size` bytes. */
static inline int kd_are_sound(const int32_t *ends, int64_t from, int64_t to, int64_t size) {
    int is_sound = ends[from] >= 0 && ends[to] <= size;
    for (int64_t i = from; i < to; i++) is_sound &= ends[i] <= ends[i + 1];
    return is_sound;
}

/* Documents `from` to `to`, row i being data[ends[i]:ends[i + 1]]; the rows that are refused go to other bytes, as int32. */
static inline void kd_documents(
    kd_reading *reading, kd_node *root, const int32_t *ends, const unsigned char *data, int64_t from, int64_t to,
    kd_bytes *refused
) {
    reading->held = PyEval_SaveThread();
    for (int64_t i = from; i < to && !reading->is_out_of_memory; i++) {
        if (kd_document(reading, root, data + ends[i], data + ends[i + 1])) continue;
        int32_t row = (int32_t)(i - from);
        kd_put_value(reading, refused, &row, 4);
    }
    if (reading->held != NULL) PyEval_RestoreThread(reading->held);
}

#endif
