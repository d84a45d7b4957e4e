/* slab.h - equal blocks in a span, and the bits that say which are free.
 *
 * Owns:      the slab's header (at a fixed place for each granule, type-stable), its row of owner's bits and
 *            its row of strangers' bits (lines of the chunk's metadata, alive as long as the slab).
 * Borrows:   its memory (memory/chunk.h).
 * Threads:   the owning heap, except where a function or field says otherwise; docs/protocols.md.
 * Invariant: blocks not set in the owner's row == out == countdown + bias  (handed to the bin or the program
 *            and not taken back in by the owner).
 * Rejected:  a list through the blocks: docs/decisions/0001-words.md.
 */
#ifndef HAK_SLAB_SLAB_H
#define HAK_SLAB_SLAB_H

#include "base/word.h"
#include "memory/chunk.h"
#include "slab/class.h"
#include "slab/lines.h"

/* In front of the owner's bits; free() counts down here. */
struct hak_slab;
struct hak_row {
    char *start;           /* of the first block, less than a page behind the slab's */
    struct hak_slab *slab; /* its header */
    uint32_t block_bytes;
    uint16_t class_index;
    uint16_t step;      /* hak_class's: for frees that state a size */
    union {
        struct {
            uint32_t countdown; /* frees by the owner until the next event */
            int32_t bias;       /* out - countdown */
        };
        uint64_t armed; /* both at once, so that who vanishes between two instructions leaves no `out` that is too low */
    };
    hak_atomic_u64 word[];
};
HAK_STATIC(sizeof(struct hak_row) == 32);

HAK_INLINE struct hak_row *hak_row_of(hak_atomic_u64 *words) {
    return (struct hak_row *)(void *)((char *)words - sizeof(struct hak_row));
}
HAK_INLINE uint32_t hak_row_out(const struct hak_row *row) { return row->countdown + (uint32_t)row->bias; }
HAK_INLINE void hak_row_arm(struct hak_row *row, uint32_t out, uint32_t countdown) {
    HAK_STATIC(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    __atomic_store_n(&row->armed, (uint64_t)(out - countdown) << 32 | countdown, __ATOMIC_RELAXED);
}

enum hak_slab_place {
    HAK_SLAB_NONE,    /* not live */
    HAK_SLAB_CURRENT, /* its heap takes words from it */
    HAK_SLAB_PARTIAL, /* in its heap's list: has free blocks */
    HAK_SLAB_FULL,    /* in no list, until its event or its mail */
};

/* A slab's name in lists: its first granule + 1; 0 is none. */
typedef uint32_t hak_slab_name;

struct HAK_ALIGNED(HAK_LINE) hak_slab {
    _Atomic(struct hak_heap *) owner;     /* the last owner while not live; NULL if there was none */
    _Atomic(struct hak_slab *) mail_next; /* in a mailbox */
    uint64_t returned;                    /* under claim: pages that went back and were not handed out since */
    uint64_t cold;                        /* under claim: pages that were free at the last sweep already */
    hak_atomic_u32 claim;                 /* 0, or the fork epoch of who holds it */
    hak_atomic_u32 mailed;                /* the fork epoch: in a mailbox or on the way to one; else 0 or stale */
    hak_slab_name next, prev;             /* in its heap's list of partial, or (next) of pending slabs */
    uint8_t place : 2;                    /* enum hak_slab_place */
    uint8_t pending : 1;                  /* 1: in its heap's pending list */
    uint8_t whole : 1;                    /* 1: all its pages were resident when it was cut */
    uint8_t exact : 1;                    /* 1: armed for the very last held block once since the last take */
    uint8_t idle : 3;                     /* a bit, from the lowest on, for each of up to three events in a row that found nothing held */
    _Atomic(uint8_t) cursor;              /* the word last taken from; its owner writes it, who claims reads it as a hint */
    uint8_t class_index;                  /* between the owner's bits and the claim's: bit-fields side by side are one memory location */
    uint8_t last_word : 6;                /* under claim: the one whose bits may not all be blocks */
    uint8_t returned_since : 1;           /* under claim: pages of it went back since it was cut */
    uint8_t is_guarded : 1;               /* under claim: nobody may touch what lies behind it (slab/secure.h) */
    uint16_t owner_line, remote_line;     /* where its rows are among the chunk's lines */
    _Atomic(uint8_t) settled;             /* of what strangers gave, what was looked at: in 255ths of all its blocks */
    uint8_t page_shift;                   /* hak_slab_page_shift() of its class */
    uint16_t frontier;                    /* a hint: blocks from here on were not handed out since it was cut */
    union {                               /* one load asks for both */
        struct {
            _Atomic(uint16_t) counted_pages; /* written under claim: counted in hak_purge.free_bytes */
            _Atomic(uint16_t) sample;        /* 0, or 64 + the block that is watched for its age, alive so far */
        };
        hak_atomic_u32 noted;
    };
};
HAK_STATIC(sizeof(struct hak_slab) == HAK_LINE && offsetof(struct hak_slab, class_index) == 50);

/* Sets some of the owner's bits in place, where a handler between a load and a store of their byte might have changed the slab's place. They
 * are the byte in front of the cursor. */
enum { HAK_SLAB_FLAGS = offsetof(struct hak_slab, class_index) - 2, HAK_SLAB_EXACT = 1 << 4, HAK_SLAB_IDLE = 1 << 5 };
HAK_INLINE void hak_slab_flags_set(struct hak_slab *slab, uint8_t bits) {
    uint8_t *flags = (uint8_t *)slab + HAK_SLAB_FLAGS;
#if defined(__x86_64__)
    __asm__("orb %1, %0" : "+m"(*flags) : "iq"(bits) : "cc");
#else
    __atomic_fetch_or(flags, bits, __ATOMIC_RELAXED);
#endif
}

/* --- finding things --- */

HAK_INLINE struct hak_slab *hak_slab_at(size_t granule) {
    return (struct hak_slab *)hak_meta_at(granule / HAK_CHUNK_GRANULES) + granule % HAK_CHUNK_GRANULES;
}
/* The start of the chunk's metadata that a header lies in. */
HAK_INLINE uintptr_t hak_slab_meta(const struct hak_slab *slab) {
    uintptr_t offset = (uintptr_t)slab - hak_region.meta, unit = offset / hak_region.unit_meta_bytes;
    uintptr_t first = hak_unit_meta(unit) + hak_region.structs_bytes;
    return first + hak_round_down((uintptr_t)slab - first, HAK_META_BYTES);
}
HAK_INLINE size_t hak_slab_granule(const struct hak_slab *slab) {
    uintptr_t offset = (uintptr_t)slab - hak_region.meta, unit = offset / hak_region.unit_meta_bytes;
    uintptr_t rest = (uintptr_t)slab - hak_unit_meta(unit) - hak_region.structs_bytes;
    size_t chunk = (unit << hak_region.unit_shift) + rest / HAK_META_BYTES;
    return chunk * HAK_CHUNK_GRANULES + rest % HAK_META_BYTES / sizeof(struct hak_slab);
}
HAK_INLINE struct hak_slab *hak_slab_named(hak_slab_name name) { return name ? hak_slab_at(name - 1) : NULL; }
HAK_INLINE hak_slab_name hak_slab_name_of(const struct hak_slab *slab) {
    return slab ? (hak_slab_name)hak_slab_granule(slab) + 1 : 0;
}
HAK_INLINE char *hak_slab_line(const struct hak_slab *slab, unsigned line) {
    return (char *)hak_slab_meta(slab) + line * HAK_LINE;
}
HAK_INLINE struct hak_row *hak_slab_row(const struct hak_slab *slab) {
    return (struct hak_row *)(void *)hak_slab_line(slab, slab->owner_line);
}
HAK_INLINE hak_atomic_u64 *hak_slab_remote(const struct hak_slab *slab) {
    return (hak_atomic_u64 *)(void *)hak_slab_line(slab, slab->remote_line);
}
/* The strangers' word of the same blocks as the owner's; hak_lines_behind(). */
HAK_INLINE hak_atomic_u64 *hak_slab_remote_word(hak_atomic_u64 *owners_word, unsigned behind) {
    return (hak_atomic_u64 *)(void *)((char *)owners_word + behind * HAK_LINE - sizeof(struct hak_row));
}
/* That many lines, for a word of the slab that begins at `granule`: no header is read, which strangers write. */
HAK_INLINE unsigned hak_slab_behind(size_t granule, const hak_atomic_u64 *owners_word) {
    return hak_lines_behind((uintptr_t)owners_word - hak_meta_at(granule / HAK_CHUNK_GRANULES));
}
/* Where its pages begin, and its blocks. */
HAK_INLINE char *hak_slab_base(const struct hak_slab *slab) { return hak_granule_address(hak_slab_granule(slab)); }
HAK_INLINE char *hak_slab_start(const struct hak_slab *slab) { return hak_slab_row(slab)->start; }
HAK_INLINE size_t hak_row_lead(const struct hak_row *row) { return (uintptr_t)row->start % HAK_GRANULE_BYTES; }
HAK_INLINE const struct hak_class *hak_slab_class(const struct hak_slab *slab) {
    return &hak_classes[slab->class_index];
}
/* What the records of a heap's slab name as owner: the heap; of a class above 1 KiB with the class in the low bits, so that the fast free
 * leaves and the slow one, which keeps the block (heap/middle.c), knows where before it has read the slab's row. */
HAK_INLINE struct hak_heap *hak_slab_owner_mark(struct hak_heap *heap, unsigned class_index) {
    HAK_STATIC((int)(HAK_CLASS_COUNT - HAK_SMALL_CLASS_MAX) <= (int)HAK_LINE); /* a heap begins a line */
    return (struct hak_heap *)((uintptr_t)heap + (hak_class_is_middle(class_index) ? class_index - HAK_SMALL_CLASS_MAX : 0));
}
/* The heap that a slab's record names: neither HAK_LARGE nor HAK_WATCHED. */
HAK_INLINE struct hak_heap *hak_slab_owner_heap(const struct hak_heap *owner) { return (struct hak_heap *)((uintptr_t)owner & -(uintptr_t)HAK_LINE); }
/* The class, if a record's owner names this heap so; else 0. */
HAK_INLINE size_t hak_slab_owners_middle(const struct hak_heap *heap, const struct hak_heap *owner) {
    uintptr_t mark = (uintptr_t)owner - 1;
    HAK_SAME(mark); /* or 1 is subtracted beside it, and both are kept */
    mark -= (uintptr_t)heap;
    return HAK_LIKELY(mark < HAK_LINE - 1) ? (size_t)HAK_SMALL_CLASS_MAX + 1 + mark : 0;
}

/* The slab that a granule record with these words belongs to. */
HAK_INLINE struct hak_slab *hak_slab_of(const struct hak_granule *record) { return hak_row_of(record->words)->slab; }
/* Third threads: whether a slab is live now; certain only while its claim is held. */
HAK_INLINE bool hak_slab_live(size_t granule) {
    return hak_load_acquire(&hak_chunk_at(granule / HAK_CHUNK_GRANULES)->slabs) >> granule % HAK_CHUNK_GRANULES & 1;
}

/* The bits of word i that are blocks; the surplus bit stays set for ever and is none. */
HAK_INLINE uint64_t hak_class_valid(const struct hak_class *class, unsigned i) {
    unsigned left = class->capacity - i * 64u;
    return left >= 64 ? ~UINT64_C(0) : hak_word_mask(0, left);
}

/* A slab's pages are 64 at most: the system's, or so many of them together that 64 make the slab. */
HAK_INLINE unsigned hak_slab_page_shift(const struct hak_class *class) {
    unsigned least = class->slab_shift - 6u;
    return hak_region.page_shift > least ? hak_region.page_shift : least;
}
/* All of them, as bits. */
HAK_INLINE uint64_t hak_slab_pages(const struct hak_class *class) {
    return hak_word_mask(0, 1u << (class->slab_shift - hak_slab_page_shift(class)));
}

/* --- claims: docs/protocols.md, 3 --- */

/* 1 in the first process, another number in each child: claims of vanished threads are void there. */
extern hak_atomic_u32 hak_epoch;

HAK_INLINE bool hak_slab_claim(struct hak_slab *slab) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    uint32_t seen = 0;
    if (HAK_LIKELY(hak_cas(&slab->claim, &seen, epoch))) return true; /* acquire: pairs with unclaim */
    return seen != epoch && hak_cas(&slab->claim, &seen, epoch);
}
HAK_INLINE void hak_slab_unclaim(struct hak_slab *slab) { hak_store_release(&slab->claim, 0); }

/* --- the life of a slab --- */

/* Cuts a new slab of the class for the heap, of which few or all blocks may be wanted; NULL when memory is short. It is CURRENT, all its blocks free. */
struct hak_slab *hak_slab_cut(struct hak_heap *heap, unsigned class_index, enum hak_growth growth);
/* The same where huge pages are made for slabs that are known to be filled (memory/ahead.h); NULL: there are none. */
struct hak_slab *hak_slab_cut_ahead(struct hak_heap *heap, unsigned class_index);
/* The same there, if that is free and resident; else NULL. */
struct hak_slab *hak_slab_cut_at(struct hak_heap *heap, unsigned class_index, size_t granule);
/* The same where one of the class ended lately. */
struct hak_slab *hak_slab_cut_again(struct hak_heap *heap, unsigned class_index);

/* Ends a slab, all of whose blocks are free and which is in no list. The caller holds the
 * claim, which is given up. `sum`, here and below: of the caller's heap, for hak_free_note_in(). */
void hak_slab_release_claimed(struct hak_slab *slab, int64_t *sum);

/* A dead heap's slab changes hands. The caller owns both heaps and holds the claim. */
void hak_slab_give_claimed(struct hak_slab *slab, struct hak_heap *heap);
void hak_slab_chunk_empty(size_t number);
void hak_slab_records_own(struct hak_slab *slab, struct hak_heap *heap);

/* Takes up to a window of free blocks of one word, if it can that at the cursor, which it moves there: the taken bits; 0
 * when all words are empty. The caller holds the claim. The row is armed for an event when all that the program now holds
 * has been freed. *opened_bytes grows by what is handed out for the first time; NULL: rather 0 than that. */
uint64_t hak_slab_take_claimed(struct hak_slab *slab, struct hak_row *row, uint32_t *count, int64_t *sum, uint64_t *opened_bytes);

/* Takes in what strangers gave back; returns how many blocks. A block that is free already ends the program. */
uint32_t hak_slab_collect(struct hak_slab *slab);

/* --- pages --- */

/* The pages without a live block, returned ones among them. Any thread that holds the claim. */
uint64_t hak_slab_free_pages_claimed(const struct hak_slab *slab);

/* Counts the slab's free pages (as above; ~0 if all are) for the bound and returns them when it is broken.
 * Gives the bytes returned. */
size_t hak_slab_account_claimed(struct hak_slab *slab, uint64_t free_pages, int64_t *sum);

/* Counts them by what is free, without looking which: at most a little too many. */
void hak_slab_estimate_claimed(struct hak_slab *slab, int64_t *sum);

/* One step of the sweep: returns the free pages that were free at the last step already, or all. */
size_t hak_slab_sweep_claimed(struct hak_slab *slab, bool all);

/* Of what strangers gave, so many blocks were looked at; 0: its owner took them in. Whoever asks first. */
void hak_slab_settle(struct hak_slab *slab, uint32_t count);

/* Mail for the slab, or for an earlier life of it, is under way. */
HAK_INLINE bool hak_slab_mailed(struct hak_slab *slab) {
    return atomic_load(&slab->mailed) == hak_load_relaxed(&hak_epoch);
}

/* --- a watched block: how long blocks live, without a hook in free --- */

/* Of each slab one block may be watched. Nothing happens when it is freed: its bit says so, and until that bit is taken
 * again, or the slab ends, nobody can mistake another block for it. Then learn is told (claimed, by the owner); NULL:
 * nobody learns. */
extern void (*hak_slab_on_death)(struct hak_slab *slab);
/* Learn's: a slab with a watched block is about to be used again, or was met by the sweep. Who saw it before the claim looks
 * again: another may have judged the block meanwhile. */
extern void (*hak_slab_on_look)(struct hak_slab *slab);
HAK_INLINE void hak_slab_look_claimed(struct hak_slab *slab) {
    if (HAK_LIKELY(!hak_load_relaxed(&slab->sample))) return;
    void (*told)(struct hak_slab *) = __atomic_load_n(&hak_slab_on_look, __ATOMIC_RELAXED);
    if (told) told(slab);
}
enum { HAK_SAMPLE_BASE = 64 };
HAK_INLINE unsigned hak_slab_sample_block(const struct hak_slab *slab) {
    return hak_load_relaxed(&slab->sample) - (unsigned)HAK_SAMPLE_BASE;
}

/* Misuse that a slab finds (front/misuse.c has the words). */
extern __attribute__((noreturn)) void (*hak_slab_misuse)(const char *function, const void *block);

/* The blocks of word `index` go out. Where a program gives back each block before it asks for the next, an event finds nothing held time
 * after time, and the next is 2, 8, 16 times as many frees away, over as many takes: whether the program stops on the very free that an event
 * counts to is chance. As soon as it holds blocks when more go out, the event is no further away than they are. */
enum { HAK_IDLE_MOST = 4 }; /* as a shift */
HAK_INLINE uint32_t hak_slab_idle_countdown(const struct hak_slab *slab, const struct hak_row *row, uint32_t few) {
    uint32_t left = row->countdown, idle = slab->idle;
    return left > 1 ? left : few << (idle < HAK_IDLE_MOST ? idle : HAK_IDLE_MOST); /* 1: cut, or taken in from strangers, just now */
}
HAK_INLINE void hak_slab_taken_claimed(struct hak_slab *slab, struct hak_row *row, unsigned index, uint64_t left, uint32_t count) {
    uint32_t held = hak_row_out(row), few = hak_load_relaxed(&hak_shares[row->class_index].few);
    if (held == 0) few = hak_slab_idle_countdown(slab, row, few);
    /* cleared before the bin shows them: a thread that vanishes between loses blocks, never doubles them */
    hak_store_release(&row->word[index], left);
    slab->exact = 0;
    hak_row_arm(row, held + count, held > few ? held : few);
}

/* Moves the cursor to the word from which the next blocks should come; it may be empty. */
HAK_INLINE void hak_slab_turn_claimed(struct hak_slab *slab, const struct hak_row *row) {
    unsigned i = hak_load_relaxed(&slab->cursor);
    uint64_t word = hak_load_relaxed(&row->word[i]);
    uint32_t below = i * 64 + (word ? hak_word_first(word) : 64);
    /* a quarter of what lies below is free: dense beats untouched */
    if (i > 0 && hak_row_out(row) * 4 < below * 3) hak_store_relaxed(&slab->cursor, 0);
    else if (word == 0 && i < slab->last_word) hak_store_relaxed(&slab->cursor, (uint8_t)(i + 1));
}

/* Of the pages up to the frontier, those that are not resident; of the others perhaps some. */
HAK_INLINE uint64_t hak_slab_absent_claimed(const struct hak_slab *slab) {
    return slab->returned & -(uint64_t)slab->returned_since;
}

/* Of a word that was opened in part, so many free blocks will do, `opened_bytes` being the heap's: an eighth of few is enough, so that a
 * class of which the program holds little does not spread over a whole word, but in heaps so small that it does not matter. Above 1.5 KiB
 * a block is little less than a page's first touch: one will do. */
HAK_INLINE uint32_t hak_slab_enough(uint32_t few, uint64_t opened_bytes) {
    enum { FREELY_BYTES = 64 << 10 };
    return opened_bytes < FREELY_BYTES ? few : few >= 16 ? few / 8 : 1;
}

/* What hak_slab_take_claimed does where nothing is in the way: no page needs a look, and of the word at the cursor enough is free that was
 * opened, which goes out together: all of it, or as many blocks side by side as a window below 64 has. Else 0, and nothing has changed. */
HAK_INLINE uint64_t hak_slab_take_plain_claimed(struct hak_slab *slab, struct hak_row *row, uint64_t opened_bytes, uint32_t *count) {
    unsigned i = hak_load_relaxed(&slab->cursor), first;
    if ((hak_slab_absent_claimed(slab) | slab->cold | hak_load_relaxed(&slab->noted)) != 0) return 0;
    uint64_t word = hak_load_relaxed(&row->word[i]), ready = word, taken;
    if (HAK_UNLIKELY(i == slab->last_word)) ready &= hak_class_valid(hak_slab_class(slab), i);
    int opened = slab->frontier - (int)i * 64;
    if (opened < 64) ready &= opened > 0 ? ~UINT64_C(0) >> (64 - opened) : 0;
    if (ready == 0) return 0;
    const struct hak_share *share = &hak_shares[row->class_index];
    uint32_t window = hak_load_relaxed(&share->blocks), most = window;
    if (window < 64) {
        if ((first = hak_word_first(ready)) + window > 64) return 0;
        taken = ~UINT64_C(0) >> (64 - window) << first;
        if ((ready & taken) != taken) return 0;
    } else {
        taken = ready;
        if (~ready) most = hak_word_count(ready);
        if (opened < 64 && most < hak_slab_enough(hak_load_relaxed(&share->few), opened_bytes)) return 0;
    }
    hak_slab_taken_claimed(slab, row, i, word & ~taken, most);
    *count = most;
    return taken;
}

#ifdef HAK_DEBUG
void hak_slab_check(const struct hak_slab *slab);
#else
HAK_INLINE void hak_slab_check(const struct hak_slab *slab) { (void)slab; }
#endif

#endif
