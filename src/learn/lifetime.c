/* lifetime.c - see lifetime.h.
 *
 *   a slab is turned to     its first block is watched, under the site that asked for it          on_slab
 *   its bit is taken again,
 *   or its slab ends        the block died among its peers                                        on_death
 *   it lives, and seven eighths of its slab are free; or while the program grows most of those     on_look
 *                           that were watched later, AGE at least, died: it outlived its peers
 *   every DECIDE slabs      sites are compared, the heaps told                                    hak_lifetime_decide
 *
 * Age is counted in what the program allocated and freed meanwhile, not in seconds: a block is long-lived when it is still
 * there after a peak, however long that took. It costs nothing until the heap has grown, and then a few additions per
 * slab: growth pays sixteen page faults in the same time.
 *
 * Guessing:  during the first peak nothing is known, and what it leaves behind stays for good. But where few sites make
 *            up the growth, all others together are a small part of it, and slabs of their own cost next to nothing: so
 *            they get them, until deaths prove them as short-lived as the rest (then never again in this process), or it
 *            turns out that there are no others: a program with one site paid a fifth of its instructions for nothing.
 * Measured:  docs/decisions/0007-lifetimes.md.
 * Rejected:  hooks in free for sampled blocks: exact ages, but a watched slab and its slow frees for each; here no free knows.
 *            Seconds as age: a program that waits for its user has only long-lived blocks.
 */
#include "learn/lifetime.h"

#include "heap/pool.h"
#include "learn/learn.h"
#include "learn/lifetime_rows.h"
#include "learn/policy.h"
#include "memory/purge.h"
#include "rules/options.h"

enum {
    PLACES = 8192,     /* one per granule: exact up to 512 MiB, a few forgotten above */
    GROWS_GRANULES = 192, /* 12 MiB */
    LOOK_SLABS = 16,      /* of one heap */
    GUESS_CHUNKS = 4,
    GUESS_SAMPLED = 96, /* granules: 6 MiB */
    GUESS_ALONE = 192,  /* granules: 12 MiB more */
    DECIDE = 16,       /* slabs */
    AGE = 64,          /* deaths of younger ones */
    COHORT = 16,       /* watched blocks, by the order of their births */
    COHORTS = 64,
    FLOOR_SHARE = 64,  /* each 200 ms: what growth is measured from follows in 13 s */
    DIP_SHARE = 8,
    LONG_PART = 10,    /* a tenth outlives: recall counts, for one block pins a page */
    LONG_TIMES = 3,    /* the others' part: else all are alike */
    BASE_JUDGED = 16,
    CLASS_JUDGED = 64, /* 16 slabs of 256 KiB */
    REST_MS = 200,
    REST_GRANULES = 64, /* 4 MiB more is growth */
    REST_PER_MS = 2000, /* blocks of one class: from there on the price, 2 ns each, is 0.4% of a processor */
    SAVED_JUDGED = 4,
    MAJOR_PART = 16,   /* a site of less is no large one */
    MAJOR_PERCENT = 80,
    MAJORS_MAX = 8,
    HALVE = 1 << 14,
    FULL_HALVE = 1 << 12, /* where there is no room for a new site: 256 MiB that were watched */
};

static hak_atomic_u64 places[PLACES]; /* granule 24, row 10, class's row 10, birth 20 */
static hak_atomic_u32 cohort_dead[COHORTS];
static hak_atomic_u32 class_slabs[HAK_SMALL_CLASS_MAX + 1], slab_count, death_count, sampled_sum, decided_count;
static hak_atomic_u64 resting; /* classes that would be split, but their blocks come and go too often for it */
static hak_atomic_i64 rest_granules; /* used when it was looked at last */
static hak_atomic_i64 low_granules;  /* used, at the least: rises slowly */
static hak_atomic_i64 dip_granules;  /* the same, rising soon */
static hak_atomic_u32 is_growing;
static hak_atomic_u32 stage, is_guessing, is_guess_refuted, decide_lock;
static hak_atomic_u32 guess_sampled, is_guess_alone; /* by who decides: sampled_sum when it began; nobody else was seen since for long */

static void row_add(unsigned row, bool is_alive, uint32_t weight) {
    if (row == 0) return;
    hak_add(is_alive ? &rows[row].alive : &rows[row].dead, weight);
}

/* --- what becomes of watched blocks --- */

enum { BIRTH_BITS = 20, ROW_BITS = 10 };
HAK_STATIC(SITES_MAX == 1 << ROW_BITS);

static uint32_t birth_of(uint64_t place) { return place & hak_word_mask(0, BIRTH_BITS); }

static uint64_t place_make(size_t granule, unsigned row, unsigned class_row, uint32_t birth) {
    return (uint64_t)granule << 40 | (uint64_t)row << 30 | (uint64_t)class_row << BIRTH_BITS | birth_of(birth);
}

/* How many cohorts behind the one that is being born; too old ones count as the oldest that is remembered. */
static uint32_t cohorts_since(uint32_t birth) {
    uint32_t now = birth_of(hak_load_relaxed(&slab_count));
    uint32_t since = birth_of((now & -(uint32_t)COHORT) - (birth & -(uint32_t)COHORT)) / COHORT;
    return since < COHORTS ? since : COHORTS;
}

/* Did most of the younger ones die, and are they many? */
static bool younger_died(uint32_t birth) {
    uint32_t since = cohorts_since(birth), at = birth_of(hak_load_relaxed(&slab_count)) / COHORT, dead = 0;
    for (uint32_t i = 0; i < since && i < COHORTS - 1; i++) dead += hak_load_relaxed(&cohort_dead[(at - i) % COHORTS]);
    return dead >= AGE && dead * 2 >= since * COHORT;
}

static void judged(struct hak_slab *slab, bool is_alive) {
    size_t granule = hak_slab_granule(slab);
    uint64_t place = hak_load_relaxed(&places[granule % PLACES]);
    hak_store_relaxed(&slab->sample, 0);
    if (place >> 40 != (granule & 0xffffff)) return;
    uint32_t weight = hak_slab_class(slab)->granules;
    row_add(place >> 30 & hak_word_mask(0, ROW_BITS), is_alive, weight);
    row_add(place >> BIRTH_BITS & hak_word_mask(0, ROW_BITS), is_alive, weight);
    if (is_alive) return;
    hak_add(&death_count, 1);
    if (cohorts_since(birth_of(place)) < COHORTS) hak_add(&cohort_dead[birth_of(place) / COHORT % COHORTS], 1);
}

static void on_death(struct hak_slab *slab) { judged(slab, false); }

/* Granules' worth of what is resident. */
static int64_t used_now(void) {
    return hak_load_relaxed(&hak_purge.used_granules) - (hak_load_relaxed(&hak_purge.absent_bytes) >> HAK_GRANULE_SHIFT);
}

/* By GROWS_GRANULES more than at its lowest lately. A program that goes up and down by less
 * leaves nothing worth a pool behind, and threads that do so quickly would meet at our counts. */
static bool grows(void) {
    int64_t used = used_now(), low = hak_load_relaxed(&low_granules);
    if (used < low) hak_store_relaxed(&low_granules, used);
    return used > low + low / 4 + GROWS_GRANULES;
}

/* Not while all that a peak made is going, one after the other. */
static bool rises(void) {
    int64_t used = used_now(), dip = hak_load_relaxed(&dip_granules);
    if (used < dip) hak_store_relaxed(&dip_granules, used);
    return used > dip + REST_GRANULES;
}

static void on_look(struct hak_slab *slab) {
    const struct hak_class *class = hak_slab_class(slab);
    const hak_atomic_u64 *words = hak_slab_row(slab)->word, *remote = hak_slab_remote(slab);
    unsigned block = hak_slab_sample_block(slab), live = 0;
    uint64_t free_bits = hak_load_relaxed(&remote[block / 64]) | hak_load_relaxed(&words[block / 64]);
    if (free_bits >> block % 64 & 1) {
        judged(slab, false);
        return;
    }
    for (unsigned i = 0; i < class->word_count; i++) {
        uint64_t set = hak_load_relaxed(&remote[i]) | hak_load_relaxed(&words[i]);
        live += hak_word_count(~set & hak_class_valid(class, i));
    }
    size_t granule = hak_slab_granule(slab);
    uint64_t place = hak_load_relaxed(&places[granule % PLACES]);
    /* what lies behind the cursor may not have been handed out yet: a slab that begins to be filled has no dead */
    unsigned out = (hak_load_relaxed(&slab->cursor) + 1u) * 64;
    if (out > class->capacity) out = class->capacity;
    if (live * 8 <= out || (rises() && younger_died(birth_of(place)))) judged(slab, true);
}

static void wake(void) {
    hak_or(&hak_split_classes, hak_exchange(&resting, 0));
    hak_pools_tell();
}

static void on_slab(struct hak_heap *heap, struct hak_row *row, enum hak_turn turn, const void *block, const void *address,
                    uintptr_t stack) {
    struct hak_slab *slab = row->slab;
    if (!hak_load_relaxed(&is_growing)) { /* counts that threads share are looked at rarely: they would meet there */
        if (turn != HAK_TURN_NEW || heap->counters.n[HAK_C_visit_new_slab] % LOOK_SLABS || !grows()) return;
        hak_store_relaxed(&is_growing, 1);
    }
    unsigned class_index = hak_class_plain(slab->class_index);
    if (class_index > HAK_SMALL_CLASS_MAX || HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) return;
    if (turn == HAK_TURN_NEW) {
        hak_add(&class_slabs[class_index], 1);
        if (HAK_UNLIKELY(hak_load_relaxed(&resting)) &&
            hak_load_relaxed(&hak_purge.used_granules) > hak_load_relaxed(&rest_granules) + REST_GRANULES)
            wake(); /* the program grows again */
    } else if (hak_row_out(row) * 4 > hak_slab_class(slab)->capacity) {
        return; /* its blocks come and go: a look at each turn would cost more than it tells */
    }
    if (hak_load_relaxed(&slab->sample)) return;
    uint32_t height = (uint32_t)((heap->stack_top - stack) >> 3), weight = hak_slab_class(slab)->granules;
    unsigned site = row_find(address, height, 0), exact = row_find(address, height, class_index);
    size_t granule = hak_slab_granule(slab);
    hak_add(&rows[site].sampled, weight);
    hak_add(&rows[exact].sampled, weight);
    hak_add(&sampled_sum, weight);
    hak_learn_site(site, (uint64_t)weight << HAK_GRANULE_SHIFT);
    uint32_t birth = hak_add(&slab_count, 1);
    if (birth % COHORT == 0) hak_store_relaxed(&cohort_dead[birth / COHORT % COHORTS], 0);
    hak_store_relaxed(&places[granule % PLACES], place_make(granule, site, exact, birth));
    unsigned index = (unsigned)((size_t)((const char *)block - row->start) / row->block_bytes);
    hak_store_release(&slab->sample, (uint16_t)(index + HAK_SAMPLE_BASE));
    if (birth % DECIDE == DECIDE - 1) hak_lifetime_decide();
}

/* --- deciding --- */

struct sums {
    uint64_t sampled, alive, dead;
};
static void sums_add(struct sums *sums, const struct row *row) {
    sums->sampled += hak_load_relaxed(&row->sampled);
    sums->alive += hak_load_relaxed(&row->alive);
    sums->dead += hak_load_relaxed(&row->dead);
}
static struct sums sums_of(const struct row *row) {
    struct sums sums = { 0, 0, 0 };
    sums_add(&sums, row);
    return sums;
}
static bool may_be_long(struct sums one) { return one.alive >= 2 && one.alive * LONG_PART >= one.alive + one.dead; }
static bool is_longer(struct sums one, struct sums base) { /* than the others, by part */
    return one.alive * (base.alive + base.dead) >= LONG_TIMES * base.alive * (one.alive + one.dead);
}

/* Which sites are long-lived, against those that may not be; how many are. */
static unsigned sites_judge(unsigned count) {
    struct sums base = { 0, 0, 0 };
    unsigned found = 0;
    for (unsigned i = 1; i < count; i++)
        if (row_ready(i) && rows[i].class_index == 0 && !may_be_long(sums_of(&rows[i]))) sums_add(&base, &rows[i]);
    for (unsigned i = 1; i < count; i++) {
        if (!row_ready(i)) continue;
        struct sums one = sums_of(&rows[i]);
        bool is_long = base.alive + base.dead >= BASE_JUDGED && may_be_long(one) && is_longer(one, base);
        hak_store_relaxed(&rows[i].is_long, is_long);
        found += is_long && rows[i].class_index == 0; /* of one class there are few samples: they refine, and prove nothing */
    }
    return found;
}

static uint64_t row_hash(const struct row *row) { return hak_pool_hash(row->address, (uintptr_t)row->height << 3); }

static void bit_set(uint64_t *bits, uint64_t hash, bool value) {
    if (value) bits[hash / 64] |= UINT64_C(1) << hash % 64;
    else bits[hash / 64] &= ~(UINT64_C(1) << hash % 64);
}

enum { BIT_WORDS = (1 << HAK_POOL_SITE_BITS) / 64 };

static void tell(const uint64_t *bits, unsigned count, bool is_learnt) {
    uint64_t classes = 0;
    bool is_new = false;
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c++) {
        if (hak_load_relaxed(&class_slabs[c]) < 2) continue;
        uint64_t mine[BIT_WORDS];
        for (unsigned i = 0; i < BIT_WORDS; i++) mine[i] = bits[i];
        for (unsigned i = 1; is_learnt && i < count; i++) { /* of this class more is known than of all classes together */
            struct sums one = sums_of(&rows[i]);
            if (row_ready(i) && rows[i].class_index == c && one.alive + one.dead >= CLASS_JUDGED)
                bit_set(mine, row_hash(&rows[i]), hak_load_relaxed(&rows[i].is_long));
        }
        for (unsigned i = 0; i < BIT_WORDS; i++) {
            if (hak_load_relaxed(&hak_pool_sites[c][i]) == mine[i]) continue;
            hak_store_relaxed(&hak_pool_sites[c][i], mine[i]);
            is_new = true;
        }
        classes |= UINT64_C(1) << (c - 1);
    }
    classes &= ~hak_load_relaxed(&resting);
    is_new |= hak_load_relaxed(&hak_split_classes) != classes;
    if (!is_new) return;
    hak_store_release(&hak_split_classes, classes);
    hak_pools_tell();
}

static void decide_learnt(unsigned count) {
    uint64_t bits[BIT_WORDS] = { 0 };
    for (unsigned i = 1; i < count; i++) {
        struct sums one = sums_of(&rows[i]);
        bool is_unknown = hak_load_relaxed(&is_guessing) && one.alive + one.dead < 4 && one.sampled * MAJOR_PART < hak_load_relaxed(&sampled_sum);
        if (row_ready(i) && rows[i].class_index == 0 && (hak_load_relaxed(&rows[i].is_long) || is_unknown))
            bit_set(bits, row_hash(&rows[i]), true);
    }
    hak_store_relaxed(&stage, HAK_LIFETIME_LEARNT);
    tell(bits, count, true);
}

/* The largest sites that together make up MAJOR_PERCENT of what was watched; false if they are many. */
static bool majors_find(unsigned count, uint16_t *major, unsigned *major_count) {
    uint64_t all = hak_load_relaxed(&sampled_sum), covered = 0, last = UINT64_MAX;
    unsigned last_row = 0;
    *major_count = 0;
    while (covered * 100 < all * MAJOR_PERCENT) {
        uint64_t most = 0;
        unsigned found = 0;
        for (unsigned i = 1; i < count; i++) { /* the next one in descending order, rows of one size by their number */
            uint64_t sampled = row_ready(i) && rows[i].class_index == 0 ? hak_load_relaxed(&rows[i].sampled) : 0;
            if (sampled > most && (sampled < last || (sampled == last && i > last_row))) most = sampled, found = i;
        }
        if (most * MAJOR_PART < all || *major_count == MAJORS_MAX) return false;
        major[(*major_count)++] = (uint16_t)found;
        covered += last = most;
        last_row = found;
    }
    return true;
}

/* No site but the large ones asked for a slab since the guess began, or since that was found. */
static bool guess_is_alone(bool is_now) {
    uint32_t sampled = hak_load_relaxed(&sampled_sum);
    bool goes_on = hak_load_relaxed(&is_guessing) || hak_load_relaxed(&is_guess_alone);
    if (!goes_on || sampled < hak_load_relaxed(&guess_sampled)) hak_store_relaxed(&guess_sampled, sampled); /* the sum was halved */
    if (is_now && sampled - hak_load_relaxed(&guess_sampled) >= GUESS_ALONE) hak_store_relaxed(&is_guess_alone, 1);
    else if (!is_now) hak_store_relaxed(&is_guess_alone, 0);
    return hak_load_relaxed(&is_guess_alone);
}

static bool decide_guessed(unsigned count) {
    uint16_t major[MAJORS_MAX];
    unsigned major_count;
    if (!majors_find(count, major, &major_count)) return false;
    struct sums minor = { 0, 0, 0 };
    for (unsigned i = 1; i < count; i++) {
        bool is_major = !row_ready(i) || rows[i].class_index != 0;
        for (unsigned m = 0; m < major_count; m++) is_major |= major[m] == i;
        if (!is_major) sums_add(&minor, &rows[i]);
    }
    if (minor.alive + minor.dead >= BASE_JUDGED && !may_be_long(minor)) {
        hak_store_relaxed(&is_guess_refuted, 1);
        hak_store_relaxed(&is_guessing, 0);
        return false;
    }
    if (guess_is_alone(minor.sampled == 0)) {
        hak_store_relaxed(&is_guessing, 0);
        return false;
    }
    uint64_t bits[BIT_WORDS];
    for (unsigned i = 0; i < BIT_WORDS; i++) bits[i] = ~UINT64_C(0);
    for (unsigned m = 0; m < major_count; m++)
        bit_set(bits, row_hash(&rows[major[m]]), false);
    hak_store_relaxed(&stage, HAK_LIFETIME_GUESSED);
    hak_store_relaxed(&is_guessing, 1);
    tell(bits, count, false);
    return true;
}

static hak_atomic_u64 taught_rows[SITES_MAX / 64]; /* of these the policy file knows */

/* Of a row that will be another site's, blocks may still be watched. */
static void rows_leave(const uint64_t *vacant) {
    for (unsigned p = 0; p < PLACES; p++) {
        uint64_t place = hak_load_relaxed(&places[p]);
        unsigned row = place >> 30 & hak_word_mask(0, ROW_BITS), exact = place >> BIRTH_BITS & hak_word_mask(0, ROW_BITS);
        if ((vacant[row / 64] >> row % 64 | vacant[exact / 64] >> exact % 64) & 1) hak_cas(&places[p], &place, 0);
    }
    for (unsigned i = 1; i < SITES_MAX; i++)
        if (vacant[i / 64] >> i % 64 & 1) hak_store_release(&rows_key[i], ROW_VACANT);
    hak_store_relaxed(&vacant_from, 1);
}

static void halve(unsigned count) {
    uint64_t vacant[SITES_MAX / 64] = { 0 };
    uint32_t sum = 0;
    bool is_full = count >= SITES_MAX, is_any = false;
    for (unsigned i = 1; i < count; i++) {
        struct row *row = &rows[i];
        if (!row_ready(i)) continue;
        hak_store_relaxed(&row->sampled, hak_load_relaxed(&row->sampled) / 2);
        hak_store_relaxed(&row->alive, hak_load_relaxed(&row->alive) / 2);
        hak_store_relaxed(&row->dead, hak_load_relaxed(&row->dead) / 2);
        if (row->class_index == 0) sum += hak_load_relaxed(&row->sampled);
        if (!is_full || (hak_load_relaxed(&row->sampled) | hak_load_relaxed(&row->alive) | hak_load_relaxed(&row->dead)) != 0) continue;
        hak_store_relaxed(&row->is_long, 0);
        hak_and(&taught_rows[i / 64], ~(UINT64_C(1) << i % 64));
        vacant[i / 64] |= UINT64_C(1) << i % 64;
        is_any = true;
    }
    hak_store_relaxed(&sampled_sum, sum);
    hak_store_relaxed(&refused, 0);
    if (is_any) rows_leave(vacant);
}

void hak_lifetime_decide(void) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch), holder = hak_load_relaxed(&decide_lock);
    if (holder == epoch || !hak_cas(&decide_lock, &holder, epoch)) return; /* another thread decides; the parent's are void */
    unsigned count = hak_load_acquire(&row_count);
    hak_add(&decided_count, 1);
    if (sites_judge(count) > 0) {
        decide_learnt(count);
    } else if (hak_load_relaxed(&hak_chunk_top) < GUESS_CHUNKS || hak_load_relaxed(&sampled_sum) < GUESS_SAMPLED ||
               hak_load_relaxed(&is_guess_refuted) || !decide_guessed(count)) {
        hak_store_relaxed(&stage, HAK_LIFETIME_TOGETHER);
        hak_store_relaxed(&resting, 0); /* or growth would split them again */
        if (hak_exchange(&hak_split_classes, 0) != 0) hak_pools_tell();
    }
    if (hak_load_relaxed(&sampled_sum) > (hak_load_relaxed(&refused) ? FULL_HALVE : HALVE)) halve(count);
    hak_store_release(&decide_lock, 0);
}

/* --- resting --- */

/* While the program does not grow, a split class whose blocks come and go quickly pays for nothing: it is joined until the
 * program grows again. Where blocks come slowly the price does not matter, and the order does. */
static uint64_t handed_seen[HAK_SMALL_CLASS_MAX + 1];

static void handed_add(struct hak_heap *heap, void *sums) {
    uint64_t *handed = sums;
    struct hak_pools *pools = hak_load_acquire(&heap->pools);
    for (unsigned c = 1; pools && c <= HAK_SMALL_CLASS_MAX; c++)
        handed[c] += __atomic_load_n(&heap->shelf[c].handed, __ATOMIC_RELAXED) +
                     __atomic_load_n(&pools->shelf[c].handed, __ATOMIC_RELAXED);
}

static void floor_rise(hak_atomic_i64 *floor, int64_t share) {
    int64_t used = used_now(), low = hak_load_relaxed(floor), more = used - low;
    hak_store_relaxed(floor, more < share ? used : low + more / share);
}

static HAK_COLD void on_tick(uint64_t now_ms) {
    static hak_atomic_u64 last_ms;
    uint64_t last = hak_load_relaxed(&last_ms), split = hak_load_relaxed(&hak_split_classes);
    if (now_ms - last < REST_MS) return;
    floor_rise(&low_granules, FLOOR_SHARE);
    floor_rise(&dip_granules, DIP_SHARE);
    hak_store_relaxed(&is_growing, 0);
    if (split == 0) {
        hak_store_relaxed(&last_ms, now_ms);
        return;
    }
    uint32_t epoch = hak_load_relaxed(&hak_epoch), holder = hak_load_relaxed(&decide_lock);
    if (holder == epoch || !hak_cas(&decide_lock, &holder, epoch)) return;
    hak_store_relaxed(&last_ms, now_ms);
    uint64_t handed[HAK_SMALL_CLASS_MAX + 1] = { 0 }, rest = 0;
    hak_heap_each(handed_add, handed);
    int64_t used = hak_load_relaxed(&hak_purge.used_granules), before = hak_exchange(&rest_granules, used);
    bool is_more = used > before + REST_GRANULES;
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c++) {
        if (!is_more && (handed[c] - handed_seen[c]) / REST_PER_MS > now_ms - last) rest |= UINT64_C(1) << (c - 1);
        handed_seen[c] = handed[c];
    }
    if (rest & split) {
        hak_or(&resting, rest & split);
        hak_and(&hak_split_classes, ~rest);
        hak_pools_tell();
    }
    hak_store_release(&decide_lock, 0);
}

/* --- from outside --- */

void hak_lifetime_teach(const void *address, uint32_t height, unsigned class_index, uint32_t samples, uint32_t alive) {
    unsigned row = row_find(address, height >> 3, class_index);
    if (row == 0) return;
    hak_add(&rows[row].sampled, samples);
    hak_add(&rows[row].alive, alive);
    hak_add(&rows[row].dead, samples - alive);
    if (class_index == 0) hak_add(&sampled_sum, samples);
}

void hak_lifetime_stats_get(struct hak_lifetime_stats *stats) {
    *stats = (struct hak_lifetime_stats){ .stage = (enum hak_lifetime_stage)hak_load_relaxed(&stage),
                                          .split_classes = hak_load_relaxed(&hak_split_classes),
                                          .site_count = hak_load_relaxed(&row_count) - 1,
                                          .decided_count = hak_load_relaxed(&decided_count),
                                          .died_count = hak_load_relaxed(&death_count) };
}

bool hak_lifetime_site_get(uint32_t index, struct hak_lifetime_site *site) {
    if (index + 1 >= hak_load_acquire(&row_count)) return false;
    if (!row_read(index + 1, site)) *site = (struct hak_lifetime_site){ .class_index = 0 };
    return true;
}

/* --- the policy file: docs/policy.md, kind `pool` --- */

enum { TAUGHT_MAX = 1024 }; /* an old file does not outweigh what is seen now for ever */
static uint64_t taught_sum; /* at start, by one thread */

static void policy_take(const struct hak_policy_site *site) {
    uint64_t samples = site->number[2] < TAUGHT_MAX ? site->number[2] : TAUGHT_MAX;
    uint64_t part = site->number[1] < 1000 ? site->number[1] : 1000;
    if (site->address == 0 || site->class_index > HAK_SMALL_CLASS_MAX) return;
    hak_lifetime_teach((const void *)(uintptr_t)site->address, site->height, site->class_index, (uint32_t)samples,
                       (uint32_t)(samples * part / 1000));
    taught_sum += samples;
    unsigned row = row_find((const void *)(uintptr_t)site->address, site->height >> 3, site->class_index);
    hak_or(&taught_rows[row / 64], UINT64_C(1) << row % 64);
}

/* The samples of what is put, and in `fresh` how many sites of these may be long-lived and are none of the file's. */
static uint64_t known_put(bool (*put)(struct hak_policy_site *site, void *context), void *context, unsigned *fresh) {
    uint64_t known_sum = 0;
    unsigned count = hak_load_acquire(&row_count);
    for (unsigned i = 1; i < count; i++) {
        struct hak_lifetime_site of;
        if (!row_read(i, &of)) continue;
        struct sums one = { of.sampled, of.alive, of.dead };
        uint64_t samples = one.alive + one.dead;
        if (samples < (of.class_index ? BASE_JUDGED : SAVED_JUDGED)) continue;
        struct hak_policy_site site = {
            .address = (uintptr_t)of.address, .height = of.height, .class_index = (uint16_t)of.class_index,
            .kind = HAK_POLICY_POOL,
            .number = { of.is_long, one.alive * 1000 / samples, samples },
        };
        if (!put(&site, context)) continue;
        known_sum += samples;
        *fresh += of.class_index == 0 && may_be_long(one) && !(hak_load_relaxed(&taught_rows[i / 64]) >> i % 64 & 1);
    }
    return known_sum;
}

/* Where much is known a new site's samples are few beside it. */
static bool policy_give(bool (*put)(struct hak_policy_site *site, void *context), void *context) {
    unsigned fresh = 0;
    return known_put(put, context, &fresh) > taught_sum + taught_sum / 8 || fresh > 0;
}

static void policy_note(bool (*put)(struct hak_policy_site *site, void *context)) {
    unsigned fresh = 0;
    taught_sum = known_put(put, NULL, &fresh);
    if (fresh == 0) return;
    for (unsigned i = 1; i < hak_load_acquire(&row_count); i++) hak_or(&taught_rows[i / 64], UINT64_C(1) << i % 64); /* what the parent knows is its own news */
}

const struct hak_policy_room hak_lifetime_sites = { policy_take, policy_give, policy_note };

void hak_learn_lifetime_start(void) {
    if (HAK_OPT(disable_lifetimes) || HAK_OPT(minimal) || HAK_OPT(secure)) return; /* the last: its slabs are of another kind */
    hak_policy_room_set(HAK_POLICY_POOL, &hak_lifetime_sites);
    __atomic_store_n(&hak_slab_on_death, on_death, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_slab_on_look, on_look, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_heap_on_slab, on_slab, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_sweep_on_pools, on_tick, __ATOMIC_RELAXED);
}
