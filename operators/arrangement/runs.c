/* Finding, cancelling and copying the rows of sorted runs: what `operators/arrangement/compiled.py` calls once for all
 * segments of an arrangement, instead of several NumPy and Arrow functions for each column of each segment.
 *
 * A view describes the columns of a segment or of entries in memory, without copying them. A row is given by the number
 * of its view and its position in the view. Python allocates all arrays.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Without `data`, all rows have `value`. */
typedef struct { const char *data; int64_t value; } numbers;

/* Without `known`, no value is null; else bit `first_bit` + row says whether a value is known. Without `end`, all values
 * have `width` bytes; else value i ends where value i + 1 begins, at `end[i + 1]`, as in Arrow. */
typedef struct { const uint8_t *known; int64_t first_bit; const int32_t *end; const char *data; int64_t width; } bytes;

enum { KEY, SUB_KEY, PAYLOAD, BYTES };

/* If `hashed`, the hash of each row is that of its key, and has no column. */
typedef struct {
    int64_t rows, hashed;
    numbers place, hash;
    bytes text[BYTES];
    numbers weight, written_at, seq, mark;
} view;

typedef struct { int32_t view, row; } spot;

_Static_assert(sizeof(view) == 29 * 8, "compiled.py fills views as arrays of 29 numbers");

enum { MANY = 32, TOO_MANY = -2, NO_MEMORY = -1 };

static const uint64_t UPPER = 0xFFFFFFFF00000000u;

static inline int64_t number(const numbers *column, int64_t row) {
    return column->data ? ((const int64_t *)column->data)[row] : column->value;
}

static inline int8_t small(const numbers *column, int64_t row) {
    return column->data ? (int8_t)column->data[row] : (int8_t)column->value;
}

static inline int is_null(const bytes *column, int64_t row) {
    int64_t bit = column->first_bit + row;
    return column->known && !(column->known[bit >> 3] >> (bit & 7) & 1);
}

static inline const char *text(const bytes *column, int64_t row, int64_t *size) {
    if (!column->end) return *size = column->width, column->data + row * column->width;
    *size = column->end[row + 1] - column->end[row];
    return column->data + column->end[row];
}

uint64_t rk_xxh64(const uint8_t *data, uint64_t size);

static int64_t hash_of_row(const view *of, int64_t row) {
    int64_t size;
    if (!of->hashed) return number(&of->hash, row);
    const char *key = text(&of->text[KEY], row, &size);
    return (int64_t)rk_xxh64((const uint8_t *)key, (uint64_t)size);
}

static int same_text(const bytes *left, int64_t i, const bytes *right, int64_t j) {
    int64_t sizes[2];
    int null = is_null(left, i);
    if (null != is_null(right, j)) return 0;
    const char *a = text(left, i, &sizes[0]), *b = text(right, j, &sizes[1]);
    return null || (sizes[0] == sizes[1] && !memcmp(a, b, (size_t)sizes[0]));
}

/* Return the first position from `at` on whose number is at least `wanted`; positions ascend, and it is probably near. */
static int64_t gallop(const uint64_t *ascending, int64_t at, int64_t stop, uint64_t wanted) {
    int64_t step = 1, low = at;
    while (at < stop && ascending[at] < wanted) low = at + 1, at += step, step *= 2;
    int64_t high = at < stop ? at : stop;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ascending[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Return rows per place, to estimate where a place is: most layouts begin with a hash, so places are evenly spread. */
static double density(const view *of) {
    const uint64_t *place = (const uint64_t *)of->place.data;
    if (!place || of->rows < 2 || place[of->rows - 1] == place[0]) return 0;
    return (double)(of->rows - 1) / (double)(place[of->rows - 1] - place[0]);
}

/* Like `gallop`, from where the row is if places are evenly spread. This reads fewer lines of memory. */
static int64_t seek(const uint64_t *place, int64_t at, int64_t stop, uint64_t wanted, double rows_per_place) {
    if (at >= stop || place[at] >= wanted) return at;
    double ahead = (double)(wanted - place[at]) * rows_per_place;
    int64_t high = ahead < (double)(stop - 1 - at) ? at + (int64_t)ahead : stop - 1, step = 1;
    if (place[high] < wanted) return gallop(place, high + 1, stop, wanted);
    while (high - step > at && place[high - step] >= wanted) high -= step, step *= 2;
    return gallop(place, high - step > at ? high - step : at, high, wanted);
}

/* Find the rows with places in closed intervals, which are disjoint and ascend. Of view v, intervals `first[v]` to
 * `stop[v]` are searched. Without `last` or up to the greatest number, an interval has all rows of its last place, else
 * those with a seq up to `last`. Return the number of rows; if it exceeds `room`, only the first have been written. */
int64_t rk_find(const view *views, int64_t count, const int64_t *first, const int64_t *stop, const uint64_t *low,
                const uint64_t *high, const int64_t *last, spot *found, int64_t room) {
    int64_t total = 0;
    for (int64_t v = 0; v < count; v++) {
        const uint64_t *place = (const uint64_t *)views[v].place.data, same = (uint64_t)views[v].place.value;
        int64_t i = first[v], row = 0, rows = views[v].rows;
        double rows_per_place = density(&views[v]);
        while (i < stop[v] && row < rows) {
            uint64_t at = place ? place[row] : same;
            if (at < low[i]) row = place ? seek(place, row, rows, low[i], rows_per_place) : rows;
            else if (at > high[i]) i = gallop(high, i, stop[v], at);
            else if (last && at == high[i] && number(&views[v].seq, row) > last[i]) i++;
            else {
                if (total < room) found[total] = (spot){(int32_t)v, (int32_t)row};
                total++, row++;
            }
        }
    }
    return total;
}

/* Return the first row whose place is at least `wanted`, from row `at` on. */
static int64_t row_from(const view *of, int64_t at, uint64_t wanted) {
    if (of->place.data) return gallop((const uint64_t *)of->place.data, at, of->rows, wanted);
    return (uint64_t)of->place.value < wanted ? of->rows : at;
}

/* Return the first row whose place is greater than `place`, from row `at` on. */
static int64_t row_after(const view *of, int64_t at, uint64_t place) {
    return place == UINT64_MAX ? of->rows : row_from(of, at, place + 1);
}

/* Keep the rows whose payload is one of `count_of` texts, in their order. Return their number, or NO_MEMORY. */
int64_t rk_among(const view *views, spot *spots, int64_t count, const bytes *texts, int64_t count_of) {
    int64_t left = 0, size, slots = 16;
    while (slots < 2 * count_of) slots *= 2;
    int64_t *table = malloc(sizeof *table * (size_t)slots);
    if (!table) return NO_MEMORY;
    for (int64_t slot = 0; slot < slots; slot++) table[slot] = -1;
    for (int64_t i = 0; i < count_of; i++) {
        const char *value = text(texts, i, &size);
        uint64_t slot = rk_xxh64((const uint8_t *)value, (uint64_t)size);
        while (table[slot & (uint64_t)(slots - 1)] >= 0) slot++;
        table[slot & (uint64_t)(slots - 1)] = i;
    }
    for (int64_t i = 0; i < count; i++) {
        const bytes *payload = &views[spots[i].view].text[PAYLOAD];
        const char *value = text(payload, spots[i].row, &size);
        for (uint64_t slot = rk_xxh64((const uint8_t *)value, (uint64_t)size);; slot++) {
            int64_t of = table[slot & (uint64_t)(slots - 1)];
            if (of < 0) break;
            if (same_text(payload, spots[i].row, texts, of)) {
                spots[left++] = spots[i];
                break;
            }
        }
    }
    free(table);
    return left;
}

/* Shorten the ranges in which to read the first rows of keys, after searching one segment of a run. The range of key i is
 * from `low[i]` up to and including (`place[i]`, `seq[i]`); of this run, `missing[i]` rows of it have not been found yet.
 * The range ends between rows of one place if more than `many` of them follow; a negative number if it must not. */
void rk_reach(const view *of, int64_t keys, uint64_t first, uint64_t last, const uint64_t *low, uint64_t *place,
              int64_t *seq, int64_t *missing, int64_t many) {
    int64_t begin = 0;
    for (int64_t i = 0; i < keys; i++) {
        if (missing[i] <= 0 || low[i] > last || place[i] < first) continue;
        begin = row_from(of, begin, low[i]);
        int64_t at = begin + missing[i] - 1;
        if (at >= of->rows || (uint64_t)number(&of->place, at) > place[i]) {
            missing[i] -= row_after(of, begin, place[i]) - begin;
            continue;
        }
        missing[i] = 0;
        uint64_t reached = (uint64_t)number(&of->place, at);
        int64_t reached_seq = INT64_MAX;
        if (many >= 0) {
            int64_t stop = row_after(of, at, reached);
            if (stop - at > many || stop == of->rows) reached_seq = number(&of->seq, at);
        }
        if (reached < place[i] || reached_seq < seq[i]) place[i] = reached, seq[i] = reached_seq;
    }
}

/* Add to `total` the weights of each key's rows. Key i has its rows in interval i; rows of other keys may be among them. */
void rk_count(const view *views, int64_t count, const int64_t *first, const int64_t *stop, const uint64_t *low,
              const uint64_t *high, const bytes *keys, const int64_t *expired_until, int64_t *total) {
    for (int64_t v = 0; v < count; v++) {
        const view *of = &views[v];
        /* Keys may share an interval, so each begins where the interval before began. */
        for (int64_t i = first[v], begin = 0; i < stop[v]; i++) {
            begin = row_from(of, begin, low[i]);
            for (int64_t row = begin; row < of->rows && (uint64_t)number(&of->place, row) <= high[i]; row++)
                if (!(expired_until && number(&of->written_at, row) <= *expired_until) &&
                    same_text(&of->text[KEY], row, keys, i))
                    total[i] += number(&of->weight, row);
        }
    }
}

typedef struct { uint64_t place; int64_t seq, index; } sortable;

static inline int is_before(const sortable *a, const sortable *b) {
    return a->place < b->place || (a->place == b->place && a->seq < b->seq);
}

/* Merge sort of what consists of ascending parts, each from `bound[i]` to `bound[i + 1]`. Return the sorted array. */
static sortable *merge_parts(sortable *from, sortable *to, int64_t *bound, int64_t parts) {
    while (parts > 1) {
        int64_t left = 0;
        for (int64_t part = 0; part < parts; part += 2) {
            int64_t i = bound[part], middle = bound[part + 1], j = middle;
            int64_t end = part + 2 <= parts ? bound[part + 2] : middle, out = i;
            while (i < middle && j < end) to[out++] = is_before(&from[j], &from[i]) ? from[j++] : from[i++];
            memcpy(to + out, from + i, sizeof *to * (size_t)(middle - i));
            memcpy(to + out + (middle - i), from + j, sizeof *to * (size_t)(end - j));
            bound[left++] = bound[part];
        }
        bound[left] = bound[parts];
        parts = left;
        sortable *swap = from;
        from = to, to = swap;
    }
    return from;
}

/* Sort rows by (place, seq); equal rows keep their order. Return `rows` or `spare`, whichever is sorted at the end. */
static sortable *sorted(sortable *rows, sortable *spare, int64_t *bound, int64_t count) {
    int64_t parts = 0;
    bound[0] = 0;
    for (int64_t i = 1; i < count; i++)
        if (is_before(&rows[i], &rows[i - 1])) bound[++parts] = i;
    bound[++parts] = count;
    return merge_parts(rows, spare, bound, parts);
}

static int is_equal(const view *views, spot a, spot b) {
    const view *x = &views[a.view], *y = &views[b.view];
    if (number(&x->written_at, a.row) != number(&y->written_at, b.row)) return 0;
    if (small(&x->mark, a.row) != small(&y->mark, b.row)) return 0;
    for (int i = 0; i < BYTES; i++)
        if (!same_text(&x->text[i], a.row, &y->text[i], b.row)) return 0;
    return 1;
}

static int has_key_of(const view *views, spot a, spot b) {
    const view *x = &views[a.view], *y = &views[b.view];
    return (x->hashed || y->hashed || number(&x->hash, a.row) == number(&y->hash, b.row)) &&
           same_text(&x->text[KEY], a.row, &y->text[KEY], b.row);
}

/* Add the weights of equal rows to the first of them, and set the weights of the others to 0. */
static int cancel(const view *views, const spot *spots, const sortable *order, int64_t count, int64_t *weight) {
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && order[end].place == order[i].place && order[end].seq == order[i].seq;) end++;
        if (end - i > MANY) return TOO_MANY;
        for (int64_t first = i; first < end - 1; first++) {
            spot of_first = spots[order[first].index];
            for (int64_t next = first + 1; weight[first] && next < end; next++)
                if (weight[next] && is_equal(views, of_first, spots[order[next].index])) {
                    weight[first] += weight[next];
                    weight[next] = 0;
                }
        }
    }
    return 0;
}

/* Write the sizes of the texts of the rows to `sizes`, then how many are null. */
static void measure(const view *views, const spot *spots, int64_t count, int64_t *sizes) {
    memset(sizes, 0, 2 * BYTES * sizeof *sizes);
    for (int64_t i = 0; i < count; i++)
        for (int column = 0; column < BYTES; column++) {
            const bytes *of = &views[spots[i].view].text[column];
            int64_t size;
            text(of, spots[i].row, &size);
            if (is_null(of, spots[i].row)) sizes[BYTES + column]++;
            else sizes[column] += size;
        }
}

/* Add up equal rows: those that differ in nothing but the weight. Rows written until `expired_until`, if it is not
 * NULL, are left out. If `always`, or a weight is negative, the rows that are left are in order of (place, seq); else they
 * keep their order. `complement`: the order is that of seqs with all bits inverted. Return the number of rows that are left, or TOO_MANY rows with one
 * (place, seq), or NO_MEMORY. A last number in `sizes` says whether a weight was negative. */
int64_t rk_consolidate(const view *views, spot *spots, int64_t count, int64_t *weight, const int64_t *expired_until,
                       int always, int complement, int64_t *sizes) {
    int64_t left = 0;
    int negative = 0;
    for (int64_t i = 0; i < count; i++) {
        const view *of = &views[spots[i].view];
        if (expired_until && number(&of->written_at, spots[i].row) <= *expired_until) continue;
        weight[left] = number(&of->weight, spots[i].row);
        negative |= weight[left] < 0;
        spots[left++] = spots[i];
    }
    count = left;
    if ((always || negative) && count) {
        sortable *rows = malloc((2 * sizeof *rows + sizeof(int64_t) + sizeof *spots) * (size_t)(count + 1));
        if (!rows) return NO_MEMORY;
        sortable *spare = rows + count;
        int64_t *bound = (int64_t *)(spare + count);
        spot *before = (spot *)(bound + count + 1);
        for (int64_t i = 0; i < count; i++) {
            const view *of = &views[spots[i].view];
            int64_t seq = number(&of->seq, spots[i].row);
            rows[i] = (sortable){(uint64_t)number(&of->place, spots[i].row), complement ? ~seq : seq, i};
        }
        sortable *order = sorted(rows, spare, bound, count);
        for (int64_t i = 0; i < count; i++) weight[i] = number(&views[spots[order[i].index].view].weight,
                                                               spots[order[i].index].row);
        int failed = cancel(views, spots, order, count, weight);
        memcpy(before, spots, sizeof *spots * (size_t)count);
        for (int64_t i = left = 0; !failed && i < count; i++)
            if (weight[i]) weight[left] = weight[i], spots[left++] = before[order[i].index];
        free(rows);
        if (failed) return failed;
    }
    measure(views, spots, left, sizes);
    sizes[2 * BYTES] = negative;
    return left;
}

/* Keep the last row of each key, by place, if its weight is positive. The rows that are left keep their order. */
int64_t rk_last(const view *views, spot *spots, int64_t count, int64_t *weight, const int64_t *expired_until,
                int64_t *sizes) {
    sortable *rows = malloc((2 * sizeof *rows + sizeof(int64_t)) * (size_t)(count + 1));
    if (!rows) return NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        rows[i] = (sortable){(uint64_t)number(&views[spots[i].view].place, spots[i].row), 0, i};
        weight[i] = number(&views[spots[i].view].weight, spots[i].row);
    }
    sortable *order = sorted(rows, rows + count, (int64_t *)(rows + 2 * count), count);
    int failed = 0;
    for (int64_t i = 0, end; i < count && !failed; i = end) {
        for (end = i + 1; end < count && (order[end].place & UPPER) == (order[i].place & UPPER);) end++;
        if (end - i > MANY) failed = TOO_MANY;
        for (int64_t row = i; row < end - 1 && !failed; row++)
            for (int64_t later = row + 1; later < end; later++)
                if (has_key_of(views, spots[order[row].index], spots[order[later].index])) {
                    weight[order[row].index] = 0;
                    break;
                }
    }
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++)
        if (weight[i] > 0 && !(expired_until && number(&views[spots[i].view].written_at, spots[i].row) <= *expired_until))
            weight[left] = weight[i], spots[left++] = spots[i];
    free(rows);
    if (failed) return failed;
    measure(views, spots, left, sizes);
    return left;
}

/* Describe the columns of a segment. `shape` gets, for each column of numbers, whether all rows have the same, and for each
 * text the width of all values or -1, and their size. */
void rk_shape(const view *of, int64_t *shape) {
    const numbers *columns[] = {&of->place, &of->hash, &of->weight, &of->written_at, &of->seq};
    for (int i = 0; i < 5; i++) {
        int64_t row = 1, first = number(columns[i], 0);
        while (columns[i]->data && row < of->rows && number(columns[i], row) == first) row++;
        *shape++ = !columns[i]->data || row == of->rows;
    }
    int64_t row = 1;
    while (of->mark.data && row < of->rows && small(&of->mark, row) == small(&of->mark, 0)) row++;
    *shape++ = !of->mark.data || row == of->rows;
    for (int i = 0; i < BYTES; i++) {
        const int32_t *end = of->text[i].end;
        int64_t size = end[of->rows] - end[0], width = size / of->rows;
        for (row = 0; row < of->rows && end[row + 1] - end[row] == width;) row++;
        *shape++ = row == of->rows ? width : -1;
        *shape++ = size;
    }
}

static void store_numbers(const numbers *column, int64_t rows, char *to, int64_t place) {
    if (place) memcpy(to + place, column->data, sizeof(int64_t) * (size_t)rows);
}

/* Write the parts of a segment's columns to their places in a blob: those of the numbers, then the validity bits, offsets
 * and data of each text; 0 for a part that the blob does not have. */
void rk_store(const view *of, char *blob, int64_t size, const int64_t *place) {
    memset(blob, 0, (size_t)size);
    const numbers *columns[] = {&of->place, &of->hash, &of->weight, &of->written_at, &of->seq};
    for (int i = 0; i < 5; i++) store_numbers(columns[i], of->rows, blob, *place++);
    if (*place) memcpy(blob + *place, of->mark.data, (size_t)of->rows);
    place++;
    for (int i = 0; i < BYTES; i++, place += 3) {
        const bytes *column = &of->text[i];
        int32_t start = column->end[0], *end = (int32_t *)(blob + place[1]);
        uint8_t *known = (uint8_t *)blob + place[0];
        for (int64_t row = 0; place[0] && row < of->rows; row++)
            if (!is_null(column, row)) known[row >> 3] |= (uint8_t)(1 << (row & 7));
        for (int64_t row = 0; place[1] && row <= of->rows; row++) end[row] = column->end[row] - start;
        if (column->end[of->rows] > start) memcpy(blob + place[2], column->data + start, (size_t)(column->end[of->rows] - start));
    }
}

/* Where to write the columns of rows. `known` is NULL if no text of the column is null. */
typedef struct {
    int64_t *place, *hash, *written_at, *seq;
    int8_t *mark;
    struct { uint8_t *known; int32_t *end; char *data; } text[BYTES];
} target;

/* Copy the columns of rows, except their weights. */
void rk_copy(const view *views, const spot *spots, int64_t count, const target *to) {
    for (int64_t i = 0; i < count; i++) {
        const view *of = &views[spots[i].view];
        int64_t row = spots[i].row;
        to->place[i] = number(&of->place, row);
        to->hash[i] = hash_of_row(of, row);
        to->written_at[i] = number(&of->written_at, row);
        to->seq[i] = number(&of->seq, row);
        to->mark[i] = small(&of->mark, row);
    }
    for (int column = 0; column < BYTES; column++) {
        uint8_t *known = to->text[column].known;
        int32_t *end = to->text[column].end;
        char *data = to->text[column].data;
        int64_t written = 0, size;
        if (known) memset(known, 0, (size_t)(count + 7) / 8);
        end[0] = 0;
        for (int64_t i = 0; i < count; i++) {
            const bytes *of = &views[spots[i].view].text[column];
            const char *value = text(of, spots[i].row, &size);
            if (!is_null(of, spots[i].row)) {
                memcpy(data + written, value, (size_t)size);
                written += size;
                if (known) known[i >> 3] |= (uint8_t)(1 << (i & 7));
            }
            end[i + 1] = (int32_t)written;
        }
    }
}
