/* thin.c - the table of live samples does not fill up: past three quarters the rate doubles, and its rows are drawn again.
 *
 * A row stands for 1/p blocks. Under twice the rate its block would have been a sample with p' < p; so it stays with p'/p, and
 * stands for 1/p' from then on, else it is dropped. What lives is estimated as well as before from half the rows, and what
 * is freed, too: a row that is dropped is never counted as freed, one that stays for all that it stands for.
 *
 * Each new sample draws a few rows, so nobody pauses. The rate stays what it came to until recording begins anew.
 *
 * Owns:      the lowest rate that rows may have (`least`), and how far the present round has come.
 * Threads:   any. A block's number is marked while its row is drawn: whoever ends the block meanwhile takes the number with
 *            its mark, and leaves the row to us. A thread that vanishes in between, in a forked child, leaves one row used.
 */
#include "watch/sampler.h"

#include "watch/draw.h"

enum { AT_ONCE = 16 };

static hak_atomic_u64 least;
static hak_atomic_u32 round_at; /* rows that were drawn, while there is a round */
enum { NONE, BEGINS, GOES_ON };
static hak_atomic_u32 state; /* who finds that one begins leaves it: `round_at` is the last one's, whose end would be this one's, and the rate doubled again */

uint64_t hak_thin_rate(void) { return hak_load_relaxed(&least); }

void hak_thin_clear(void) { hak_store_relaxed(&least, 0); }

void hak_thin_in_child(void) {
    uint32_t begins = BEGINS;
    hak_cas(&state, &begins, NONE);
}

static void row_draw(uint32_t number, uint64_t rate, uint64_t *random) {
    const struct hak_live_row *row = hak_record_row(number);
    uint64_t block = __atomic_load_n(&row->block, __ATOMIC_RELAXED);
    hak_atomic_u32 *place = block ? hak_sample_number((void *)(uintptr_t)block) : NULL;
    uint32_t seen = number;
    if (!place || !hak_cas(place, &seen, number | HAK_NUMBER_MARK)) return; /* free, or on its way */
    bool stays = true;
    /* of a block that grew in place there are several: they stay as they are, which is as right */
    if (row->rate_bytes < rate && !row->next && !row->from_bytes && !row->guarded) {
        double chance = hak_draw_hit_chance((double)row->block_bytes / (double)rate);
        double uniform = (double)(hak_draw_bits(random) >> 11) * 0x1p-53;
        stays = uniform < chance * hak_record_weight(number);
        hak_record_reweigh(number, stays ? 1 / chance : 0, rate);
    }
    uint32_t marked = number | HAK_NUMBER_MARK;
    bool lives = hak_cas(place, &marked, stays ? number : 0);
    if (!stays) hak_record_drop(number);
    else if (!lives) hak_sample_end(number);
}

void hak_thin_step(uint64_t *random) {
    uint64_t capacity = hakmem_published.live.capacity, used = __atomic_load_n(&hakmem_published.live.used, __ATOMIC_RELAXED);
    uint32_t seen = hak_load_acquire(&state);
    if (HAK_LIKELY(seen == NONE)) {
        if (HAK_LIKELY(hak_record_live_count() < capacity - capacity / 4)) return;
        if (!hak_cas(&state, &seen, BEGINS)) return;
        hak_store_relaxed(&least, 2 * hak_sample_rate());
        hak_store_relaxed(&round_at, 0);
        __atomic_fetch_add(&hakmem_published.thinned, 1, __ATOMIC_RELAXED);
        hak_sample_rate_again();
        hak_store_release(&state, GOES_ON); /* pairs with the load */
    } else if (seen == BEGINS) {
        return;
    }
    uint64_t rate = hak_load_relaxed(&least);
    uint32_t at = hak_add(&round_at, AT_ONCE);
    for (uint32_t i = at; i < at + AT_ONCE && i < used; i++) row_draw(i + 1, rate, random);
    if (at + AT_ONCE >= used) hak_store_release(&state, NONE);
}
