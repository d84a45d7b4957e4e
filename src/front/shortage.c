/* shortage.c - memory is short: before malloc returns NULL, the program is asked whether it can give some up.
 *
 * Owns:      the callback and its context, in two records of which one is in force; which threads are in a callback.
 * Threads:   any. Who sets writes the record that is not in force, then the turn; who reads looks whether the turn passed by meanwhile. So
 *            a reader never waits, also not in a child whose parent had a thread in the middle of setting.
 * Nested:    a thread that is in a callback is not asked again. It is known by the place of its hak_self, for it may have no heap, and a
 *            child of fork() has the same.
 * Rejected:  asking with the new-handler: C++ calls that after malloc has failed, and it knows neither context nor size.
 */
#include "front/front.h"

#include "hakmem/hakmem.h"
#include "os/os.h"

#include <errno.h>

enum { ASKED_MAX = 256, TRIES_MAX = 64, TURNS_MAX = 200 };

static struct {
    hak_atomic_u32 turn; /* record[turn % 2] is in force; 0: nothing was ever set */
    hak_atomic_u32 setting; /* the fork epoch: a thread of this process is at it */
    struct {
        _Atomic(hak_shortage_callback) callback;
        _Atomic(void *) context;
    } record[2];
} told;
static hak_atomic_u64 asked[ASKED_MAX];

HAK_EXPORT void hak_on_shortage(hak_shortage_callback callback, void *context) {
    uint32_t epoch = hak_load_relaxed(&hak_epoch), seen = hak_load_relaxed(&told.setting);
    for (unsigned turn = 0; seen == epoch || !hak_cas(&told.setting, &seen, epoch); seen = hak_load_relaxed(&told.setting)) {
        if (seen == epoch && turn >= TURNS_MAX) return; /* some 20 ms: this thread's own handler, or one that left by longjmp */
        hak_os_yield(turn++);
    }
    uint32_t now = hak_load_relaxed(&told.turn), next = now + 1 ? now + 1 : 2;
    /* release, with the acquire in record_read(): who sees these sees that the turn went on to the other record before */
    hak_store_release(&told.record[next % 2].callback, callback);
    hak_store_release(&told.record[next % 2].context, context);
    hak_store_release(&told.turn, next);
    hak_store_release(&told.setting, 0);
}

static hak_shortage_callback record_read(void **context) {
    hak_shortage_callback callback;
    uint32_t turn = hak_load_acquire(&told.turn), before;
    do {
        before = turn;
        callback = hak_load_acquire(&told.record[turn % 2].callback);
        *context = hak_load_acquire(&told.record[turn % 2].context);
        turn = hak_load_acquire(&told.turn);
    } while (turn != before);
    return callback;
}

static uint64_t self_name(void) { return (uint64_t)(uintptr_t)&hak_self; }

/* ASKED_MAX: this thread is in a callback, or too many others are. */
static unsigned asked_enter(void) {
    for (unsigned i = 0; i < ASKED_MAX; i++)
        if (hak_load_relaxed(&asked[i]) == self_name()) return ASKED_MAX;
    for (unsigned i = 0; i < ASKED_MAX; i++) {
        uint64_t none = 0;
        if (hak_load_relaxed(&asked[i]) == 0 && hak_cas(&asked[i], &none, self_name())) return i;
    }
    return ASKED_MAX;
}

HAK_COLD bool hak_shortage_ask(size_t bytes, unsigned tries) {
    void *context;
    if (hak_load_relaxed(&told.turn) == 0 || tries >= TRIES_MAX) return false;
    hak_shortage_callback callback = record_read(&context);
    if (!callback) return false;
    unsigned place = asked_enter();
    if (place == ASKED_MAX) return false;
    int saved = errno;
    bool is_worth = callback(context, bytes) != 0;
    errno = saved;
    hak_store_relaxed(&asked[place], 0);
    return is_worth;
}

HAK_COLD void hak_shortage_in_child(void) {
    if (hak_load_relaxed(&told.turn) == 0) return;
    for (unsigned i = 0; i < ASKED_MAX; i++)
        if (hak_load_relaxed(&asked[i]) != self_name()) hak_store_relaxed(&asked[i], 0);
}

HAK_COLD void *hak_shortage_end(void) {
    void (*on_shortage)(void) = HAK_HOOK(shortage);
    if (on_shortage) on_shortage();
    errno = ENOMEM;
    return NULL;
}
