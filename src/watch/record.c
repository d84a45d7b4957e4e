/* record.c - samples become rows: the live ones, sums for each stack and thread, sums of all.
 *
 * Owns:      the published struct; the tables of live samples and threads (own mappings, made when sampling first begins).
 * Threads:   any. A live row belongs to who took it from the free rows, then to whom the exchange of its number gives it; its
 *            `sequence` is odd while it is written, for readers in other processes. Sums are relaxed additions.
 * Bounds:    tables do not grow. The live one is kept from filling up (thin.c). A sample that finds no free row all the same is
 *            in the process's totals, in no stack's; lost_live and lost_bytes say how many.
 */
#include "watch/sampler.h"

#include "hakmem/hakmem.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/alone.h"
#include "watch/draw.h"
#include "heap/key.h"
#include "watch/watch.h"

#include <string.h>

HAK_ALIGNED(HAK_LINE) HAK_EXPORT struct hak_published hakmem_published;

enum { LIVE = 1 << 16, THREADS = 2048, SMALL = 16 };

static struct hak_live_row *live;
static hak_atomic_u32 *live_next;  /* of free rows: row + 1 */
static hak_atomic_u64 live_free;   /* the first free row + 1, and a tag against ABA in the high half */
static struct hak_thread_row *threads;

static hak_atomic_i64 live_bytes;
static hak_atomic_u32 live_count;

static hak_sample_function *observers[2][HAK_OBSERVER_MAX]; /* of alloc, of free */
static hak_atomic_u32 observer_count;

#define ADD(field, amount) __atomic_fetch_add(&(field), (uint64_t)(amount), __ATOMIC_RELAXED)

bool hak_sample_observe(hak_sample_function *on_alloc, hak_sample_function *on_free) {
    uint32_t at = hak_add(&observer_count, 1);
    if (at >= HAK_OBSERVER_MAX) return false;
    __atomic_store_n(&observers[0][at], on_alloc, __ATOMIC_RELEASE);
    __atomic_store_n(&observers[1][at], on_free, __ATOMIC_RELEASE);
    return true;
}

static void observers_tell(unsigned which, struct hak_heap *heap, const struct hak_sample *sample) {
    uint32_t count = hak_load_relaxed(&observer_count);
    for (uint32_t i = 0; i < count && i < HAK_OBSERVER_MAX; i++) {
        hak_sample_function *told = __atomic_load_n(&observers[which][i], __ATOMIC_ACQUIRE);
        if (told) told(heap, sample);
    }
}

/* --- start --- */

static struct hak_table table_of(void *rows, size_t row_bytes, size_t capacity, size_t used) {
    return (struct hak_table){ (uintptr_t)rows, row_bytes, capacity, used };
}

static bool tables_map(void) {
    struct hak_published *published = &hakmem_published;
    bool small = hak_region.is_limited;
    size_t page = hak_os_page_bytes(), live_count = LIVE / (small ? SMALL : 1), thread_count = THREADS / (small ? SMALL : 1);
    size_t live_bytes = hak_round_up(live_count * sizeof *live, page), next_bytes = hak_round_up(live_count * 4, page);
    size_t bytes = live_bytes + next_bytes + hak_round_up(thread_count * sizeof *threads, page);
    if (!hak_timeline_start(small)) return false; /* first: it is taken again where the rest cannot be had */
    char *at = hak_os_map(bytes);
    if (!at) return false;
    hak_os_not_huge(at, bytes); /* only what is used is to become resident, also where the system's setting is "always" */
    if (!hak_stack_start(published, small)) {
        hak_os_unmap(at, bytes);
        return false;
    }
    live = (void *)at;
    live_next = (void *)(at + live_bytes);
    threads = (void *)(at + live_bytes + next_bytes);
    published->live = table_of(live, sizeof *live, live_count, 0);
    published->threads = table_of(threads, sizeof *threads, thread_count, 1);
    threads[0].sequence = 2;
    published->start_ns = hak_os_clock_ns();
    published->start_realtime_ns = hak_os_clock_realtime_ns();
    published->pid = hak_os_pid();
    return true;
}

void hak_watch_publish_learn(const void *shown, size_t bytes) {
    struct hak_table *learn = &hakmem_published.learn;
    learn->row_bytes = bytes;
    learn->capacity = learn->used = 1;
    __atomic_store_n(&learn->address, (uintptr_t)shown, __ATOMIC_RELEASE); /* last: a reader looks for it */
}

static hak_atomic_u32 started; /* HAK_MADE: the tables are there */

bool hak_record_ready(void) { return hak_load_acquire(&started) == HAK_MADE; }

bool hak_record_start(void) {
    if (hak_make_begin(&started)) hak_store_release(&started, tables_map() ? (uint32_t)HAK_MADE : 0u);
    return hak_record_ready();
}

/* --- live rows --- */

static uint32_t row_take(void) {
    hak_add(&live_count, 1);
    uint64_t head = hak_load_acquire(&live_free);
    while ((uint32_t)head != 0) {
        uint64_t next = (head & ~UINT64_C(0xffffffff)) + (UINT64_C(1) << 32);
        next |= hak_load_relaxed(&live_next[(uint32_t)head - 1]);
        if (hak_cas_weak(&live_free, &head, next)) return (uint32_t)head;
    }
    uint64_t *used = &hakmem_published.live.used, at = __atomic_load_n(used, __ATOMIC_RELAXED);
    do
        if (at >= hakmem_published.live.capacity) {
            hak_add(&live_count, -1u);
            return 0;
        }
    while (!__atomic_compare_exchange_n(used, &at, at + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return (uint32_t)at + 1;
}

static void row_give(uint32_t number) {
    hak_add(&live_count, -1u);
    uint64_t head = hak_load_relaxed(&live_free), next;
    do {
        hak_store_relaxed(&live_next[number - 1], (uint32_t)head);
        next = ((head & ~UINT64_C(0xffffffff)) + (UINT64_C(1) << 32)) | number;
    } while (!hak_cas_weak(&live_free, &head, next));
}

struct hak_live_row *hak_record_row(uint32_t number) { return &live[number - 1]; }

/* --- threads --- */

static uint32_t thread_row(uint32_t tid) {
    struct hak_published *published = &hakmem_published;
    uint64_t at = __atomic_load_n(&published->threads.used, __ATOMIC_RELAXED);
    do
        if (at >= published->threads.capacity) {
            ADD(published->lost_threads, 1);
            return 0;
        }
    while (!__atomic_compare_exchange_n(&published->threads.used, &at, at + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    struct hak_thread_row *row = &threads[at];
    hak_row_write_begin(&row->sequence);
    row->tid = tid;
    hak_os_thread_name(row->name);
    row->first_ns = hak_os_clock_ns();
    hak_row_write_end(&row->sequence);
    return (uint32_t)at;
}

static bool is_of_name(const struct hak_thread_row *row, char name[16]) {
    hak_os_thread_name(name);
    return memcmp(name, row->name, 16) == 0;
}

/* A program names its threads after it started them. */
static void thread_name_again(struct hak_thread_row *row) {
    char name[16];
    if (is_of_name(row, name)) return;
    hak_row_write_begin(&row->sequence);
    memcpy(row->name, name, sizeof name);
    hak_row_write_end(&row->sequence);
}

/* --- a sample's birth --- */

static uint64_t double_bits(double value) {
    union {
        double value;
        uint64_t bits;
    } both = { value };
    return both.bits;
}
static double bits_double(uint64_t bits) {
    union {
        uint64_t bits;
        double value;
    } both = { bits };
    return both.value;
}

static uint64_t weighted(double weight, uint64_t amount) { return (uint64_t)(weight * (double)amount + 0.5); }

static void variance_add(uint64_t *sum, double amount) {
    uint64_t bits = __atomic_load_n(sum, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(sum, &bits, double_bits(bits_double(bits) + amount), true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {}
}

static void sums_alloc(struct hak_stack_row *stack, struct hak_thread_row *thread, const struct hak_sample *sample, bool grown) {
    uint64_t count = grown ? 0 : weighted(sample->weight, HAK_COUNT_UNIT);
    uint64_t bytes = weighted(sample->weight, sample->requested_bytes);
    double requested = (double)sample->requested_bytes;
    ADD(stack->alloc_samples, 1);
    ADD(stack->alloc_count, count);
    ADD(stack->alloc_bytes, bytes);
    variance_add(&stack->alloc_variance, sample->weight * (sample->weight - 1) * requested * requested);
    if (sample->class_index == 0) {
        ADD(stack->large_count, count);
        ADD(stack->large_bytes, bytes);
    }
    if (!__atomic_load_n(&stack->first_ns, __ATOMIC_RELAXED)) __atomic_store_n(&stack->first_ns, sample->birth_ns, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&stack->key, __ATOMIC_RELAXED)) __atomic_store_n(&stack->key, sample->key, __ATOMIC_RELAXED);
    __atomic_store_n(&stack->last_ns, sample->birth_ns, __ATOMIC_RELAXED);
    ADD(thread->alloc_samples, 1);
    ADD(thread->alloc_count, count);
    ADD(thread->alloc_bytes, bytes);
    __atomic_store_n(&thread->last_ns, sample->birth_ns, __ATOMIC_RELAXED);
    ADD(hakmem_published.alloc_count, count);
    ADD(hakmem_published.samples, 1);
}

static void row_write(struct hak_live_row *row, const struct hak_sample *sample, const struct hak_watch *watch, size_t from_bytes) {
    hak_row_write_begin(&row->sequence);
    row->state = 1;
    row->stack = sample->stack;
    row->thread = sample->thread;
    row->block = (uintptr_t)sample->block;
    row->place = (uintptr_t)sample->place;
    row->requested_bytes = sample->requested_bytes;
    row->block_bytes = sample->block_bytes;
    row->rate_bytes = sample->rate_bytes;
    row->weight = double_bits(sample->weight);
    row->birth_ns = sample->birth_ns;
    row->birth_bytes = sample->birth_bytes;
    row->key = sample->key;
    row->class_index = sample->class_index;
    row->guarded = sample->is_guarded;
    row->next = 0;
    row->serial = watch->serial;
    row->tid = watch->tid;
    row->from_bytes = from_bytes;
    hak_row_write_end(&row->sequence);
}

uint32_t hak_record_alloc(struct hak_heap *heap, struct hak_watch *watch, struct hak_sample *sample, size_t from_bytes,
                          struct hak_stack_here here, bool with_stack) {
    struct hak_stack_call call;
    hak_thin_step(&watch->random);
    sample->stack = hak_stack_take(here, &watch->bounds, with_stack, &call);
    sample->call = call.address;
    struct hak_caller caller = { (const void *)call.address, call.stack };
    sample->key = hak_caller_key(caller, heap->stack_top, sample->class_index);
    if (!watch->tid) { /* a new thread, or another on this stack: the table has no room for each of a server's that lives for a request */
        char name[16];
        watch->tid = hak_os_tid();
        if (watch->thread && !is_of_name(&threads[watch->thread], name)) watch->thread = 0;
    }
    if (!watch->thread) watch->thread = thread_row(watch->tid);
    else if (watch->serial % 64 == 0) thread_name_again(&threads[watch->thread]);
    sample->thread = watch->thread;
    sample->birth_ns = hak_os_clock_ns();
    uint64_t bytes = weighted(sample->weight, sample->requested_bytes);
    sample->birth_bytes = ADD(hakmem_published.alloc_bytes, bytes);
    watch->serial++;
    uint32_t number = row_take();
    if (!number) {
        ADD(hakmem_published.lost_live, 1);
        ADD(hakmem_published.lost_bytes, bytes);
        return 0;
    }
    row_write(hak_record_row(number), sample, watch, from_bytes);
    hak_add(&live_bytes, (int64_t)bytes);
    sums_alloc(hak_stack_row_at(sample->stack), &threads[sample->thread], sample, from_bytes != 0);
    observers_tell(0, heap, sample);
    return number;
}

/* --- and its end --- */

static unsigned age_index(uint64_t age_ns) {
    unsigned index = 0;
    for (uint64_t least = 1000; age_ns >= least && index < HAK_AGE_COUNT - 1; least *= 10) index++;
    return index;
}

static void sums_free(const struct hak_sample *sample, bool grown) {
    struct hak_stack_row *stack = hak_stack_row_at(sample->stack);
    uint64_t count = grown ? 0 : weighted(sample->weight, HAK_COUNT_UNIT);
    uint64_t bytes = weighted(sample->weight, sample->requested_bytes);
    ADD(stack->free_samples, 1);
    ADD(stack->free_count, count);
    ADD(stack->free_bytes, bytes);
    ADD(stack->age_count[age_index(sample->age_ns)], count);
    ADD(stack->age_ns, weighted(sample->weight, sample->age_ns / 1000));
    if (sample->is_temporary) ADD(stack->temporary_count, count);
    ADD(threads[sample->thread_freed].free_count, count);
    ADD(threads[sample->thread_freed].free_bytes, bytes);
    ADD(hakmem_published.free_count, count);
    ADD(hakmem_published.free_bytes, bytes);
    ADD(hakmem_published.samples_freed, 1);
}

uint32_t hak_record_free(struct hak_heap *heap, uint32_t number, bool known) {
    struct hak_live_row *row = hak_record_row(number);
    const struct hak_watch *watch = hak_heap_is_none(heap) ? NULL : heap->watch;
    bool is_here = watch && watch->thread_pointer == (uintptr_t)__builtin_thread_pointer();
    struct hak_sample sample = { .block = (void *)row->block, .place = (const void *)row->place,
                                 .requested_bytes = row->requested_bytes, .block_bytes = row->block_bytes,
                                 .rate_bytes = row->rate_bytes, .weight = bits_double(row->weight), .key = row->key,
                                 .birth_ns = row->birth_ns, .birth_bytes = row->birth_bytes,
                                 .class_index = row->class_index, .stack = row->stack, .thread = row->thread };
    hak_add(&live_bytes, -(int64_t)weighted(sample.weight, sample.requested_bytes));
    uint32_t next = row->next, serial = row->serial;
    bool grown = row->from_bytes != 0;
    sample.age_ns = hak_os_clock_ns() - row->birth_ns;
    sample.age_bytes = __atomic_load_n(&hakmem_published.alloc_bytes, __ATOMIC_RELAXED) - row->birth_bytes;
    sample.thread_freed = is_here ? watch->thread : 0;
    bool is_same = is_here && row->tid && row->tid == watch->tid && watch->given == hak_watch_given(heap); /* not by their rows: threads may share one */
    sample.is_temporary = is_same && (serial == watch->serial || sample.age_ns < HAK_TEMPORARY_NS);
    hak_row_write_begin(&row->sequence);
    row->state = 0;
    row->block = 0;
    hak_row_write_end(&row->sequence);
    row_give(number);
    if (sample.birth_ns >= __atomic_load_n(&hakmem_published.start_ns, __ATOMIC_RELAXED)) sums_free(&sample, grown);
    if (known) observers_tell(1, heap, &sample);
    return next;
}

uint32_t hak_record_live_count(void) { return hak_load_relaxed(&live_count); }
double hak_record_weight(uint32_t number) { return bits_double(hak_record_row(number)->weight); }

void hak_record_reweigh(uint32_t number, double weight, uint64_t rate_bytes) {
    struct hak_live_row *row = hak_record_row(number);
    uint64_t before = weighted(bits_double(row->weight), row->requested_bytes);
    hak_add(&live_bytes, (int64_t)weighted(weight, row->requested_bytes) - (int64_t)before);
    hak_row_write_begin(&row->sequence);
    row->weight = double_bits(weight);
    row->rate_bytes = rate_bytes;
    hak_row_write_end(&row->sequence);
}

void hak_record_drop(uint32_t number) {
    struct hak_live_row *row = hak_record_row(number);
    hak_row_write_begin(&row->sequence);
    row->state = 0;
    row->block = 0;
    hak_row_write_end(&row->sequence);
    row_give(number);
}

uint32_t hak_record_next(uint32_t number) { return hak_record_row(number)->next; }

void hak_record_chain(uint32_t number, uint32_t next) {
    struct hak_live_row *row = hak_record_row(number);
    hak_row_write_begin(&row->sequence);
    row->next = next;
    hak_row_write_end(&row->sequence);
}

void hak_record_move(uint32_t number, void *block, size_t bytes) {
    struct hak_live_row *row = hak_record_row(number);
    uint64_t lost = row->requested_bytes > bytes ? row->requested_bytes - bytes : 0;
    hak_row_write_begin(&row->sequence);
    row->block = row->place = (uintptr_t)block;
    row->requested_bytes -= lost;
    hak_row_write_end(&row->sequence);
    if (!lost) return;
    uint64_t freed = weighted(bits_double(row->weight), lost); /* part of it went: its bytes, no block */
    hak_add(&live_bytes, -(int64_t)freed);
    if (row->birth_ns < __atomic_load_n(&hakmem_published.start_ns, __ATOMIC_RELAXED)) return;
    ADD(hak_stack_row_at(row->stack)->free_bytes, freed);
    ADD(hakmem_published.free_bytes, freed);
}

uint64_t hak_record_live_bytes(void) {
    int64_t bytes = hak_load_relaxed(&live_bytes);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* --- a recording that begins --- */

static void live_stacks(hak_stack_number *number) {
    for (uint64_t i = 0, used = __atomic_load_n(&hakmem_published.live.used, __ATOMIC_RELAXED); i < used; i++) {
        struct hak_live_row *row = &live[i];
        uint32_t stack = __atomic_load_n(&row->stack, __ATOMIC_RELAXED);
        if (stack && __atomic_load_n(&row->state, __ATOMIC_RELAXED)) __atomic_store_n(&row->stack, number(stack), __ATOMIC_RELAXED);
    }
}

static void live_stacks_forget(void) {
    for (uint64_t i = 0; i < hakmem_published.live.used; i++) __atomic_store_n(&live[i].stack, 0, __ATOMIC_RELAXED);
}

static void thread_forget(struct hak_heap *heap, void *unused) {
    (void)unused;
    if (heap->watch) __atomic_store_n(&heap->watch->thread, 0, __ATOMIC_RELAXED);
}

static void threads_renew(void) {
    hak_heap_each(thread_forget, NULL);
    for (uint64_t i = 0; i < hakmem_published.live.used; i++) __atomic_store_n(&live[i].thread, 0, __ATOMIC_RELAXED);
    memset(&threads[1], 0, (hakmem_published.threads.used - 1) * sizeof *threads);
    __atomic_store_n(&hakmem_published.threads.used, 1, __ATOMIC_RELAXED);
}

static bool is_half_full(const struct hak_table *table) { return table->used > table->capacity / 2; }

/* Nothing is sampled, so only those read rows of stacks who free what was. Who is in the middle of a sample since before the end of the last
 * recording keeps the tables as they are. Who did this in a parent that forked meanwhile has left them half moved: nothing of them stays. */
void hak_record_renew(void) {
    struct hak_published *published = &hakmem_published;
    bool has_stacks = is_half_full(&published->stacks) || is_half_full(&published->frames), has_threads = is_half_full(&published->threads);
    bool is_left = published->renewed & 1;
    if (!hak_record_ready() || !(has_stacks || has_threads || is_left) || (!is_left && hak_sample_is_busy())) return;
    if (!is_left) __atomic_fetch_add(&published->renewed, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&published->start_ns, hak_os_clock_ns(), __ATOMIC_SEQ_CST); /* first: a free of what was before is in no sum from here on */
    if (is_left) live_stacks_forget();
    if (has_stacks || is_left) hak_stack_renew(live_stacks);
    if (has_threads || is_left) threads_renew();
    __atomic_fetch_add(&published->renewed, 1, __ATOMIC_SEQ_CST);
}

/* What is counted meanwhile may be lost. */
void hak_record_clear(void) {
    struct hak_published *published = &hakmem_published;
    if (!hak_record_ready()) return;
    for (uint64_t i = 0; i < published->stacks.used; i++) {
        struct hak_stack_row *row = hak_stack_row_at((uint32_t)i);
        memset(&row->alloc_samples, 0, sizeof *row - offsetof(struct hak_stack_row, alloc_samples));
    }
    for (uint64_t i = 0; i < published->threads.used; i++)
        memset(&threads[i].alloc_count, 0, sizeof *threads - offsetof(struct hak_thread_row, alloc_count));
    uint64_t *const sums[] = { &published->samples, &published->samples_freed, &published->alloc_count,
                               &published->alloc_bytes, &published->free_count, &published->free_bytes, &published->lost_live,
                               &published->lost_stacks, &published->lost_threads, &published->lost_bytes,
                               &published->lost_block, &published->stack_walks, &published->stack_unwinds,
                               &published->stack_repeats, &published->held_count, &published->held_ns, &published->held_max_ns };
    for (unsigned i = 0; i < sizeof sums / sizeof *sums; i++) __atomic_store_n(sums[i], 0, __ATOMIC_RELAXED);
    hak_timeline_clear();
    __atomic_store_n(&published->start_ns, hak_os_clock_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&published->start_realtime_ns, hak_os_clock_realtime_ns(), __ATOMIC_RELAXED);
}
