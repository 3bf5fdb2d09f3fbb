/* Kafka records as columns: what `service/kafka/client_columns.py` calls once per thousands of records.
 *
 * This library has no copy of librdkafka. `rk_bind` finds the functions of the one that confluent-kafka has loaded, so
 * that both share its clients. It uses neither Python's headers nor librdkafka's: the functions and the two structures
 * below are part of librdkafka's stable ABI.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} rd_kafka_message_t;

enum { VTYPE_END, VTYPE_TOPIC, VTYPE_RKT, VTYPE_PARTITION, VTYPE_VALUE, VTYPE_KEY, VTYPE_OPAQUE, VTYPE_MSGFLAGS,
       VTYPE_TIMESTAMP, VTYPE_HEADER };
enum { FLAG_COPY = 2 };

static rd_kafka_queue_t *(*queue_new)(rd_kafka_t *);
static rd_kafka_queue_t *(*queue_get_partition)(rd_kafka_t *, const char *, int32_t);
static void (*queue_forward)(rd_kafka_queue_t *, rd_kafka_queue_t *);
static void (*queue_destroy)(rd_kafka_queue_t *);
static ptrdiff_t (*consume_batch_queue)(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
static void (*message_destroy)(rd_kafka_message_t *);
static int64_t (*message_timestamp)(const rd_kafka_message_t *, int *);
static int (*message_headers)(const rd_kafka_message_t *, rd_kafka_headers_t **);
static int (*header_get_all)(const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *);
static const char *(*topic_name)(const rd_kafka_topic_t *);
static rd_kafka_topic_t *(*topic_new)(rd_kafka_t *, const char *, void *);
static void (*topic_destroy)(rd_kafka_topic_t *);
static int (*last_error)(void);
static int (*producev)(rd_kafka_t *, ...);

/* Find librdkafka's functions among the dependencies of the library at `path`. Return the name of a missing one. */
const char *rk_bind(const char *path) {
    static const struct { const char *name; void *place; } wanted[] = {
        {"rd_kafka_queue_new", &queue_new},
        {"rd_kafka_queue_get_partition", &queue_get_partition},
        {"rd_kafka_queue_forward", &queue_forward},
        {"rd_kafka_queue_destroy", &queue_destroy},
        {"rd_kafka_consume_batch_queue", &consume_batch_queue},
        {"rd_kafka_message_destroy", &message_destroy},
        {"rd_kafka_message_timestamp", &message_timestamp},
        {"rd_kafka_message_headers", &message_headers},
        {"rd_kafka_header_get_all", &header_get_all},
        {"rd_kafka_topic_name", &topic_name},
        {"rd_kafka_topic_new", &topic_new},
        {"rd_kafka_topic_destroy", &topic_destroy},
        {"rd_kafka_last_error", &last_error},
        {"rd_kafka_producev", &producev},
    };
    void *library = dlopen(path, RTLD_NOW);
    if (!library) return path;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found) return wanted[i].name;
        memcpy(wanted[i].place, &found, sizeof found);
    }
    return NULL;
}

/* A column that grows. Its layout, and the order of columns in a chunk, are repeated in client_columns.py. */
typedef struct { char *data; int64_t size, room; } column;

/* Column i has the offsets of its first rows behind it: `_end` columns begin with 0 and are int32, as Arrow's. */
typedef struct {
    column topic, partition, offset, timestamp;         /* per record: int32, int32, int64, int64 */
    column value_end, value, value_known;               /* int32, bytes, uint8 */
    column key_end, key, key_known;
    column header_end, header_name, header_value_end, header_value, header_value_known;
    column names;                                       /* the names of headers, each with a final 0 */
    column events;                                      /* struct event, each with its text behind it */
} chunk;

typedef struct { int32_t error, topic, partition, size; int64_t offset; } event;

static char *more(column *c, size_t size) {
    if (c->size + (int64_t)size > c->room) {
        int64_t room = (c->size + (int64_t)size) * 2 + 4096;
        char *data = realloc(c->data, (size_t)room);
        if (!data) return NULL;
        c->data = data;
        c->room = room;
    }
    c->size += (int64_t)size;
    return c->data + c->size - size;
}

static int add(column *c, const void *data, size_t size) {
    if (!size) return 0;
    char *to = more(c, size);
    if (!to) return -1;
    memcpy(to, data, size);
    return 0;
}

static int add_int(column *c, int32_t value) { return add(c, &value, sizeof value); }

/* Append bytes, or null, to three columns. */
static int add_bytes(column *end, column *bytes, column *known, const void *data, size_t size) {
    char is_known = data != NULL;
    if (bytes->size + (int64_t)size > INT32_MAX) return -1;
    return add(bytes, data, data ? size : 0) | add_int(end, (int32_t)bytes->size) | add(known, &is_known, 1);
}

/* Return the number of a header's name. Records rarely have more than a few different ones. */
static int32_t name_number(chunk *c, const char *name) {
    int32_t number = 0;
    for (const char *at = c->names.data, *end = at + c->names.size; at < end; at += strlen(at) + 1, number++)
        if (!strcmp(at, name)) return number;
    return add(&c->names, name, strlen(name) + 1) ? -1 : number;
}

static int add_record(chunk *c, const rd_kafka_message_t *m, int32_t topic, int keys) {
    int kind, failed = 0;
    int64_t timestamp = message_timestamp(m, &kind);
    if (!kind) timestamp = -1;
    failed |= add_int(&c->topic, topic) | add_int(&c->partition, m->partition);
    failed |= add(&c->offset, &m->offset, sizeof m->offset) | add(&c->timestamp, &timestamp, sizeof timestamp);
    failed |= add_bytes(&c->value_end, &c->value, &c->value_known, m->payload, m->len);
    failed |= add_bytes(&c->key_end, &c->key, &c->key_known, keys || !m->payload ? m->key : NULL, m->key_len);
    rd_kafka_headers_t *headers;
    if (!message_headers(m, &headers)) {
        const char *name;
        const void *value;
        size_t size;
        for (size_t i = 0; !header_get_all(headers, i, &name, &value, &size); i++) {
            failed |= add_int(&c->header_name, name_number(c, name));
            failed |= add_bytes(&c->header_value_end, &c->header_value, &c->header_value_known, value, size);
        }
    }
    failed |= add_int(&c->header_end, (int32_t)(c->header_name.size / 4));
    return failed;
}

static int add_event(chunk *c, const rd_kafka_message_t *m, int32_t topic) {
    event e = {m->err, topic, m->partition, m->payload ? (int32_t)m->len : 0, m->offset};
    return add(&c->events, &e, sizeof e) | add(&c->events, m->payload, (size_t)e.size);
}

static void clear(chunk *c) {
    column *columns = (column *)c;
    for (size_t i = 0; i < sizeof *c / sizeof *columns; i++) columns[i].size = 0;
}

/* A reader: a queue to which partitions are forwarded, and the numbers of its topics. */
typedef struct {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    int32_t topics, parts;
    char **topic;
    rd_kafka_queue_t **part;
    chunk chunk;
} reader;

enum { PIECE = 1000, WAIT_MS = 5 };

reader *rk_reader(rd_kafka_t *rk) {
    reader *r = calloc(1, sizeof *r);
    if (r) *r = (reader){.rk = rk, .queue = queue_new(rk)};
    return r;
}

/* Forget the partitions of the reader. Their records no longer arrive in its queue. */
void rk_reader_release(reader *r) {
    for (int32_t i = 0; i < r->parts; i++) {
        queue_forward(r->part[i], NULL);
        queue_destroy(r->part[i]);
    }
    for (int32_t i = 0; i < r->topics; i++) free(r->topic[i]);
    r->parts = r->topics = 0;
}

void rk_reader_free(reader *r) {
    rk_reader_release(r);
    queue_destroy(r->queue);
    column *columns = (column *)&r->chunk;
    for (size_t i = 0; i < sizeof r->chunk / sizeof *columns; i++) free(columns[i].data);
    free(r->topic);
    free(r->part);
    free(r);
}

/* Give a topic the next number. Return 0, or -1 if memory ran out. */
int rk_reader_topic(reader *r, const char *name) {
    char **topics = realloc(r->topic, sizeof *topics * (size_t)(r->topics + 1));
    if (!topics) return -1;
    r->topic = topics;
    return (r->topic[r->topics++] = strdup(name)) ? 0 : -1;
}

/* Let the records of a partition arrive in the reader's queue. Return 0, or -1 on failure. */
int rk_reader_partition(reader *r, const char *topic, int32_t partition) {
    rd_kafka_queue_t **parts = realloc(r->part, sizeof *parts * (size_t)(r->parts + 1));
    if (!parts) return -1;
    r->part = parts;
    rd_kafka_queue_t *part = queue_get_partition(r->rk, topic, partition);
    if (!part) return -1;
    queue_forward(part, r->queue);
    r->part[r->parts++] = part;
    return 0;
}

/* When a partition's fetcher stops, librdkafka ends the forwarding, at some time after the partition was unassigned. So
 * partitions are forwarded whenever nothing has arrived; their records then move to the reader's queue. */
static ptrdiff_t await(reader *r, int wait_ms, rd_kafka_message_t **messages) {
    ptrdiff_t count = consume_batch_queue(r->queue, 0, messages, 1);
    for (int waited = 0; count <= 0 && waited < wait_ms; waited += WAIT_MS) {
        for (int32_t i = 0; i < r->parts; i++) queue_forward(r->part[i], r->queue);
        count = consume_batch_queue(r->queue, WAIT_MS, messages, 1);
    }
    return count;
}

static int32_t topic_number(const reader *r, const rd_kafka_topic_t *rkt) {
    const char *name = rkt ? topic_name(rkt) : "";
    for (int32_t i = 0; i < r->topics; i++)
        if (!strcmp(r->topic[i], name)) return i;
    return -1;
}

/* Read records that have arrived, about `most_rows` and `most_bytes` at most; if there is none, wait up to `wait_ms` for
 * one. Keys are read if `keys` is set or a value is null. Return the chunk, which the next call overwrites, or NULL if
 * memory ran out. */
chunk *rk_read(reader *r, int64_t most_rows, int64_t most_bytes, int wait_ms, int keys) {
    chunk *c = &r->chunk;
    rd_kafka_message_t *messages[PIECE];
    const rd_kafka_topic_t *last = NULL;
    int32_t number = -1;
    int64_t rows = 0;
    size_t wanted = PIECE;
    int failed = 0;
    clear(c);
    failed |= add_int(&c->value_end, 0) | add_int(&c->key_end, 0);
    failed |= add_int(&c->header_end, 0) | add_int(&c->header_value_end, 0);
    while (!failed && rows < most_rows && c->value.size + c->key.size < most_bytes) {
        ptrdiff_t count = rows || c->events.size ? consume_batch_queue(r->queue, 0, messages, wanted)
                                                 : await(r, wait_ms, messages);
        if (count <= 0) break;
        for (ptrdiff_t i = 0; i < count; i++) {
            rd_kafka_message_t *m = messages[i];
            if (m->rkt != last || number < 0) number = topic_number(r, last = m->rkt);
            if (m->err) failed |= add_event(c, m, number);
            else failed |= add_record(c, m, number, keys), rows++;
            message_destroy(m);
        }
        /* Large values come in small pieces, so that a chunk does not exceed its size by much. */
        int64_t room = (most_bytes - c->value.size) / (c->value.size / (rows + 1) + 1);
        wanted = (size_t)(most_rows - rows < PIECE ? most_rows - rows : PIECE);
        if (room < (int64_t)wanted) wanted = room > 1 ? (size_t)room : 1;
    }
    return failed ? NULL : c;
}

typedef struct { const int32_t *end; const char *data; const uint8_t *known; } strings;

static const char *at(const strings *s, int64_t row, size_t *size) {
    if (!s->end || (s->known && !s->known[row])) return *size = 0, NULL;
    *size = (size_t)(s->end[row + 1] - s->end[row]);
    return *size ? s->data + s->end[row] : "";
}

/* Produce rows `start` to `stop`: values and keys, each row to the partition in `partition` (NULL: the partitioner
 * decides), with a header `header` that has the word of its kind (NULL: none). Return the row at which the producer's
 * queue was full or another error arose, or `stop`. `error` gets librdkafka's code. */
int64_t rk_produce(rd_kafka_t *rk, const char *topic, int64_t start, int64_t stop, const strings *value,
                   const strings *key, const int32_t *partition, const char *header, const int8_t *kind,
                   const strings *word, int *error) {
    rd_kafka_topic_t *rkt = topic_new(rk, topic, NULL);
    if (!rkt) return *error = last_error(), start;
    *error = 0;
    while (start < stop) {
        size_t value_size, key_size, word_size = 0;
        const char *payload = at(value, start, &value_size), *name = at(key, start, &key_size);
        int place = partition ? partition[start] : -1;
        const char *of_kind = header ? at(word, kind[start], &word_size) : NULL;
        *error = producev(rk, VTYPE_RKT, rkt, VTYPE_PARTITION, place, VTYPE_MSGFLAGS, FLAG_COPY, VTYPE_VALUE, payload,
                          value_size, VTYPE_KEY, name, key_size, header ? VTYPE_HEADER : VTYPE_END, header, of_kind,
                          (ptrdiff_t)word_size, VTYPE_END);
        if (*error) break;
        start++;
    }
    topic_destroy(rkt);
    return start;
}
