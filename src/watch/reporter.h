/* reporter.h - one report at a time, in handlers of signals, across forks.
 *
 * Who reports is known by process and thread: what a thread of the parent was at is nobody's in the child. A second thread waits for a
 * second at most, since whoever goes on first may end the program, and then does without; so it ends, whatever the first one waits for.
 *
 * Threads:   any; everything here is async-signal-safe.
 */
#ifndef HAK_WATCH_REPORTER_H
#define HAK_WATCH_REPORTER_H

#include "base/atomic.h"
#include "os/os.h"

struct hak_reporter {
    hak_atomic_u64 who; /* process << 32 | thread; 0: nobody */
};

HAK_INLINE uint64_t hak_reporter_me(void) { return (uint64_t)hak_os_pid() << 32 | hak_os_tid(); }
HAK_INLINE bool hak_reporter_is(const struct hak_reporter *reporter, uint64_t me) { return hak_load_relaxed(&reporter->who) == me; }

/* Until hak_reporter_end(). False: this thread is in a report already, which met a fault; or another's lasts too long. */
HAK_INLINE bool hak_reporter_begin(struct hak_reporter *reporter, uint64_t me) {
    enum { TURNS_MAX = 10000 };
    for (unsigned turn = 0;; turn++) {
        uint64_t seen = hak_load_relaxed(&reporter->who);
        if (seen == me) return false;
        if ((seen == 0 || seen >> 32 != me >> 32) && hak_cas(&reporter->who, &seen, me)) return true;
        if (turn == TURNS_MAX) return false;
        hak_os_yield(turn); /* most are short: a fault that the program mends */
    }
}

HAK_INLINE void hak_reporter_end(struct hak_reporter *reporter) { hak_store_release(&reporter->who, 0); }

#endif
