/* Hashes and codes of the values of a column, and their order: what `operators/columns/hashing.py` and `sorting.py` do
 * with NumPy where no compiler was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static inline uint64_t rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

/* Numbers are little-endian, as all arrays of Arrow and NumPy here. */
static inline uint64_t word(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t half(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t one_round(uint64_t accumulator, uint64_t value) {
    return rotate(accumulator + value * P2, 31) * P1;
}

static inline uint64_t merged(uint64_t hash, uint64_t lane) { return (hash ^ one_round(0, lane)) * P1 + P4; }

/* XXH64 with seed 0, by its specification. */
uint64_t rk_xxh64(const uint8_t *at, uint64_t size) {
    const uint8_t *end = at + size;
    uint64_t hash = P5;
    if (size >= 32) {
        uint64_t a = P1 + P2, b = P2, c = 0, d = 0 - P1;
        for (; end - at >= 32; at += 32) {
            a = one_round(a, word(at));
            b = one_round(b, word(at + 8));
            c = one_round(c, word(at + 16));
            d = one_round(d, word(at + 24));
        }
        hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        hash = merged(merged(merged(merged(hash, a), b), c), d);
    }
    hash += size;
    for (; end - at >= 8; at += 8) hash = rotate(hash ^ one_round(0, word(at)), 27) * P1 + P4;
    if (end - at >= 4) hash = rotate(hash ^ half(at) * P1, 23) * P2 + P3, at += 4;
    for (; at < end; at++) hash = rotate(hash ^ *at * P5, 11) * P1;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}

/* Hash each value; value i is from `end[i]` to `end[i + 1]`. */
void rk_hash64(const uint8_t *data, const int32_t *end, int64_t rows, uint64_t *hashes) {
    for (int64_t row = 0; row < rows; row++) hashes[row] = rk_xxh64(data + end[row], (uint64_t)(end[row + 1] - end[row]));
}

/* Write a code of each value: of its length, and of the words at its start, middle and end if it has 8 bytes or more. */
void rk_sketch64(const uint8_t *data, const int32_t *end, int64_t rows, uint64_t *codes) {
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *at = data + end[row];
        int64_t size = end[row + 1] - end[row], room = size - 8;
        codes[row] = (uint64_t)size * P5;
        if (room < 0) continue;
        codes[row] = one_round(codes[row], word(at));
        codes[row] = one_round(codes[row], word(at + room / 2));
        codes[row] = one_round(codes[row], word(at + room));
    }
}

typedef struct { uint64_t code; int64_t row; } coded;

enum { DIGIT_BITS = 11, DIGITS = 6, DIGIT_VALUES = 1 << DIGIT_BITS };

/* Sort codes, and write the rows that they come from to `rows` unless it is NULL. Equal codes keep their order. A radix
 * sort, from the last digit to the first; a digit that all codes share costs nothing. Return 0, or -1 if memory ran out. */
int rk_sort64(uint64_t *codes, int64_t *rows, int64_t count) {
    int64_t (*starts)[DIGIT_VALUES] = calloc(DIGITS, sizeof *starts);
    coded *from = malloc(2 * sizeof *from * (size_t)(count + 1)), *to = from + count, *all = from;
    if (!starts || !from) return free(starts), free(all), -1;
    for (int64_t i = 0; i < count; i++) {
        from[i] = (coded){codes[i], i};
        for (int digit = 0; digit < DIGITS; digit++)
            starts[digit][codes[i] >> digit * DIGIT_BITS & (DIGIT_VALUES - 1)]++;
    }
    for (int digit = 0; digit < DIGITS; digit++) {
        int shift = digit * DIGIT_BITS;
        int64_t start = 0, *start_of = starts[digit];
        if (count && start_of[codes[0] >> shift & (DIGIT_VALUES - 1)] == count) continue;
        for (int value = 0; value < DIGIT_VALUES; value++) {
            int64_t of_value = start_of[value];
            start_of[value] = start;
            start += of_value;
        }
        for (int64_t i = 0; i < count; i++) to[start_of[from[i].code >> shift & (DIGIT_VALUES - 1)]++] = from[i];
        coded *swap = from;
        from = to, to = swap;
    }
    for (int64_t i = 0; i < count; i++) {
        codes[i] = from[i].code;
        if (rows) rows[i] = from[i].row;
    }
    free(starts);
    free(all);
    return 0;
}
