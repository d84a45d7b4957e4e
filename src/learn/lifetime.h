/* lifetime.h - which call sites are long-lived, and which classes are worth splitting for it.
 *
 * Owns:      the table of sites and what became of their watched blocks (slab/slab.h: one in each slab, no hook in free).
 * Writes:    hak_split_classes and hak_pool_sites (heap/pool.h), which the heaps follow.
 * Threads:   any. Counts are relaxed atomics; one thread at a time decides, by a try-lock whose word holds the fork epoch.
 */
#ifndef HAK_LEARN_LIFETIME_H
#define HAK_LEARN_LIFETIME_H

#include "learn/policy.h"

enum hak_lifetime_stage {
    HAK_LIFETIME_TOGETHER, /* nothing is split */
    HAK_LIFETIME_GUESSED,  /* few sites make up the growth: all others have slabs of their own, until something is known */
    HAK_LIFETIME_LEARNT,   /* the sites that proved long-lived have slabs of their own */
};

struct hak_lifetime_site {
    const void *address;
    uint32_t height;         /* bytes of stack */
    uint32_t class_index;    /* 0: all classes together */
    uint32_t sampled, alive, dead; /* in granules: watched; of these outlived their peers, or died among them */
    bool is_long;
};

struct hak_lifetime_stats {
    enum hak_lifetime_stage stage;
    uint64_t split_classes;
    uint32_t site_count, decided_count, died_count;
};

/* From front/start.c, twice at most: learning begins, but when HAKMEM_DISABLE_LIFETIMES or HAKMEM_MINIMAL is set. */
void hak_learn_lifetime_start(void);

/* What it knows by site, for the policy file. */
extern const struct hak_policy_room hak_lifetime_sites;

/* Knowledge of an earlier run, or of a test: `samples` watched blocks, of which `alive` outlived their peers. */
void hak_lifetime_teach(const void *address, uint32_t height, unsigned class_index, uint32_t samples, uint32_t alive);

void hak_lifetime_stats_get(struct hak_lifetime_stats *stats);
/* The site of a row, from 0 on; false behind the last. */
bool hak_lifetime_site_get(uint32_t row, struct hak_lifetime_site *site);

/* Decides now, as the next slabs would have. */
void hak_lifetime_decide(void);

#endif
