/* lru_cache.c - a cache of strings: keys and values of changing sizes, the least recently used goes first.
 *
 * Arguments: requests 1000000, keys 200000, MB of the cache 32, seed 12345.
 * Some keys are asked for far more often than others. A request that misses puts the key in: an entry, a key of 9
 * to 58 bytes and a value of 16 to 4,095 (each doubling equally often); one that hits reads the value and, one time
 * in ten, changes its size by realloc. The buckets are the workload's own. An operation is one request.
 */
#include "work.h"

enum { BUCKETS = 1 << 16 };
struct entry {
    struct entry *newer, *older, *chain;
    unsigned char *key; /* the number, then filled up with its last byte */
    unsigned char *value;
    uint64_t number;
    uint32_t value_bytes, key_bytes;
};
static struct entry *bucket[BUCKETS], *newest, *oldest;
static uint64_t random_state, held_bytes, miss_count, digest;

static struct entry **bucket_of(uint64_t number) { return &bucket[(number * 0x9e3779b97f4a7c15u) >> 48]; }

static void list_add(struct entry *entry) {
    entry->newer = NULL;
    entry->older = newest;
    if (newest) newest->newer = entry;
    newest = entry;
    if (!oldest) oldest = entry;
}
static void list_remove(struct entry *entry) {
    *(entry->newer ? &entry->newer->older : &newest) = entry->older;
    *(entry->older ? &entry->older->newer : &oldest) = entry->newer;
}

static void value_write(struct entry *entry) {
    memset(entry->value, (unsigned char)entry->number, entry->value_bytes);
}

static void entry_drop(struct entry *entry) {
    struct entry **link = bucket_of(entry->number);
    while (*link != entry) link = &(*link)->chain;
    *link = entry->chain;
    list_remove(entry);
    held_bytes -= entry->value_bytes + entry->key_bytes;
    work_verify(entry->value, entry->value_bytes, (unsigned char)entry->number);
    if (entry->key[entry->key_bytes - 1] != entry->key[0]) work_die(1, "key %" PRIu64 " has changed", entry->number);
    free(entry->value);
    free(entry->key);
    free(entry);
}

static struct entry *entry_make(uint64_t number) {
    size_t key_bytes = 9 + number % 50;
    struct entry *entry = malloc(sizeof *entry), **first = bucket_of(number);
    work_aligned(entry, sizeof *entry);
    *entry = (struct entry){ .number = number, .chain = *first, .key_bytes = (uint32_t)key_bytes };
    entry->key = malloc(key_bytes);
    work_aligned(entry->key, key_bytes);
    memset(entry->key, (unsigned char)number, key_bytes);
    memcpy(entry->key, &number, sizeof number);
    entry->value_bytes = (uint32_t)work_log_size(&random_state, 4, 12);
    entry->value = malloc(entry->value_bytes);
    work_aligned(entry->value, entry->value_bytes);
    value_write(entry);
    *first = entry;
    held_bytes += entry->value_bytes + key_bytes;
    return entry;
}

static struct entry *entry_find(uint64_t number) {
    for (struct entry *entry = *bucket_of(number); entry; entry = entry->chain)
        if (entry->number == number) {
            if (memcmp(entry->key, &number, sizeof number)) work_die(1, "key %" PRIu64 " has changed", number);
            return entry;
        }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t request_count = work_arg(argc, argv, 1, "requests", 1000000, 1, UINT32_MAX);
    uint64_t key_count = work_arg(argc, argv, 2, "keys", 200000, 1, 1u << 30);
    uint64_t cache_bytes = work_arg(argc, argv, 3, "mb", 32, 1, 1u << 16) * 1000000u;
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 4);
    random_state = seed;
    struct work_span span = work_start();
    for (uint64_t request = 0; request < request_count; request++) {
        uint64_t number = work_skewed(&random_state, key_count);
        struct entry *entry = entry_find(number);
        if (entry) {
            work_verify(entry->value, entry->value_bytes, (unsigned char)number);
            list_remove(entry);
            if (work_below(&random_state, 10) == 0) {
                held_bytes -= entry->value_bytes;
                entry->value_bytes = (uint32_t)work_log_size(&random_state, 4, 12);
                entry->value = realloc(entry->value, entry->value_bytes);
                work_aligned(entry->value, entry->value_bytes);
                value_write(entry);
                held_bytes += entry->value_bytes;
            }
        } else {
            entry = entry_make(number);
            miss_count++;
        }
        list_add(entry);
        digest += entry->value[entry->value_bytes / 2];
        while (held_bytes > cache_bytes) entry_drop(oldest);
    }
    work_stop(&span);
    uint64_t resident_kb = work_resident_kb(), live_bytes = held_bytes;
    while (oldest) entry_drop(oldest);
    work_begin("lru_cache", argc, argv);
    work_number("seed", seed);
    work_measured(request_count, span);
    work_check(digest + miss_count);
    work_number("misses", miss_count);
    work_number("live_bytes", live_bytes);
    work_number("resident_kb", resident_kb);
    return work_end();
}
