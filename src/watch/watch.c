/* watch.c - recording from the start to the end of a program, by its environment or by another process.
 *
 * The control word (published.h) is looked at once per 20 ms of a process that visits. A dump on request is written by
 * the thread that finds it.
 *
 * Threads:   whoever has the tick; a forked child's first step; the end.
 */
#include "watch/watch.h"

#include "base/text.h"
#include "heap/hooks.h"
#include "os/descriptor.h"
#include "os/module.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/alone.h"
#include "watch/guard.h"
#include "watch/sampler.h"

#include <errno.h>
#include <string.h>

static _Atomic(uint64_t) rate_asked;   /* of recording, 0: it is off */
static uint64_t option_seen;  /* of sample_bytes, when rate_asked was set */
static uint64_t dump_over_mb; /* the next resident size that makes a dump */
static unsigned pid_started;
static uint64_t guard_seen;   /* bytes between guarded samples, as asked for last */

static void guard_look(void) {
    enum { RATE_BITS_MAX = 50 };
    uint64_t rate = HAK_OPT(guard) * (unsigned __int128)HAK_OPT(sample_bytes) >> RATE_BITS_MAX ? UINT64_C(1) << RATE_BITS_MAX
                                                                                              : HAK_OPT(guard) * HAK_OPT(sample_bytes);
    if (HAK_LIKELY(rate == guard_seen)) return;
    guard_seen = rate;
    hak_sample_want(HAK_SAMPLE_GUARD, rate, true);
}

static void record(uint64_t rate_bytes) {
    rate_asked = rate_bytes;
    option_seen = HAK_OPT(sample_bytes);
    hak_sample_want(HAK_SAMPLE_RECORD, rate_bytes, true);
}

/* `named` is a file for the process it was set for; its children's, where it has no %p, and other reasons', have a further name. False: it
 * is too long. */
static bool path_make(struct hak_text *path, const char *named, const char *reason, const char *usual) {
    bool is_of_process = hak_path_expand(path, named) || hak_os_pid() == pid_started;
    size_t length = hak_text_end(path);
    if (length == 0 || length >= path->capacity) return false;
    bool is_plain = path->at[length - 1] != '/' && !hak_os_is_folder(path->at) && strncmp(path->at, "/dev/", 5) != 0;
    if (is_plain && !is_of_process) hak_text_format(path, ".%u", hak_os_pid());
    if (is_plain && strcmp(reason, usual) != 0) hak_text_format(path, ".%s", reason);
    return hak_text_end(path) < path->capacity;
}

void (*hak_watch_on_failure)(const char *what, const char *path, int error);

/* What failed is said once: a place that cannot be written will not be better the next time. */
static int dump_automatic(const char *reason) {
    static hak_atomic_u32 is_said;
    char path[HAK_OPTION_TEXT_BYTES + 64];
    struct hak_text text = HAK_TEXT(path);
    if (!hak_options.record[0]) return -EINVAL;
    int error = path_make(&text, hak_options.record, reason, "exit") ? hak_dump_write(path, reason) : -ENAMETOOLONG;
    uint32_t nobody = 0;
    if (error && error != -EBUSY && hak_watch_on_failure && hak_cas(&is_said, &nobody, 1))
        hak_watch_on_failure("HAKMEM_RECORD", hak_options.record, error);
    return error;
}

int hak_watch_dump_guard(char *path, size_t bytes) {
    static const char reason[] = "guard";
    char wanted[HAK_OPTION_TEXT_BYTES + 64];
    struct hak_text text = HAK_TEXT(wanted), name = { path, 0, bytes };
    bool has_own = hak_options.guard_dump[0];
    if (!has_own && !hak_options.record[0]) return 1;
    bool is_whole = path_make(&text, has_own ? hak_options.guard_dump : hak_options.record, reason, has_own ? reason : "exit");
    hak_dump_name(&name, wanted, reason);
    return is_whole ? hak_dump_write(path, reason) : -ENAMETOOLONG;
}

/* --- from outside --- */

static int command_do(struct hak_control *control) {
    uint64_t rate = __atomic_load_n(&control->rate_bytes, __ATOMIC_RELAXED);
    switch (__atomic_load_n(&control->command, __ATOMIC_RELAXED)) {
    case HAK_CONTROL_NONE: return 0;
    case HAK_CONTROL_START:
        if (!rate_asked) {
            hak_record_renew();
            hak_record_clear();
        }
        /* fall through */
    case HAK_CONTROL_RATE:
        if (rate == 0) rate = HAK_OPT(sample_bytes);
        if (rate < 64 || rate > UINT64_C(1) << 40) return -EINVAL;
        record(rate);
        return hak_sample_rate() ? 0 : -ENOMEM;
    case HAK_CONTROL_STOP: record(0); return 0;
    case HAK_CONTROL_DUMP:
        control->path[sizeof control->path - 1] = 0;
        return hak_dump_write(control->path, "request");
    case HAK_CONTROL_CLEAR: hak_record_clear(); return 0;
    default: return -ENOSYS;
    }
}

static void control_look(void) {
    struct hak_control *control = &hakmem_published.control;
    uint32_t request = __atomic_load_n(&control->request, __ATOMIC_ACQUIRE);
    if (HAK_LIKELY(request == control->seen)) return;
    __atomic_store_n(&control->result, command_do(control), __ATOMIC_RELAXED);
    __atomic_store_n(&control->seen, request, __ATOMIC_RELEASE);
}

/* What another process asked for is its parent's alone: who began a recording there ends it there, and a request that waits was not meant for
 * this one. What HAKMEM_RECORD asked for goes on. It only reads, where nothing is to be done: each page that is written here is a fault in
 * every child. */
static HAK_COLD void on_fork(void) {
    struct hak_control *control = &hakmem_published.control;
    uint32_t request = __atomic_load_n(&control->request, __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(request != control->seen)) {
        __atomic_store_n(&control->result, -ECANCELED, __ATOMIC_RELAXED);
        __atomic_store_n(&control->seen, request, __ATOMIC_RELEASE);
    }
    if (HAK_UNLIKELY(rate_asked && !hak_options.record[0])) record(0);
    if (HAK_UNLIKELY(hak_sample_rate() != 0)) {
        hak_thin_in_child();
        hak_sample_rate_again(); /* or each child would draw what its brothers draw, block by block */
    }
    if (HAK_UNLIKELY(hakmem_published.renewed & 1)) hak_record_renew(); /* a thread of the parent was in the middle of it */
}

/* --- by itself --- */

static void threshold_look(void) {
    uint64_t limit_mb = dump_over_mb ? dump_over_mb : HAK_OPT(record_over_mb);
    if (!HAK_OPT(record_over_mb) || !rate_asked || !hak_options.record[0]) return;
    uint64_t resident_mb = hak_os_resident_bytes() >> 20;
    if (resident_mb < limit_mb) return;
    if (dump_automatic("resident") == -EBUSY) return; /* the next tick's */
    dump_over_mb = resident_mb + resident_mb / 2; /* half as much again, before the next */
}

/* One at a time: a dump may take longer than the time between two ticks. */
static struct hak_alone ticking;

static HAK_COLD void on_tick(struct hak_heap *heap, uint64_t now_ms) {
    (void)heap;
    static uint64_t threshold_ms;
    if (!hak_alone_begin(&ticking)) return;
    struct hak_control *control = &hakmem_published.control;
    bool is_ours = rate_asked || __atomic_load_n(&control->request, __ATOMIC_RELAXED) != control->seen;
    uint64_t begin_ns = is_ours ? hak_os_clock_ns() : 0; /* without a recording a look costs next to nothing */
    hak_publish_tick(now_ms);
    control_look();
    if (rate_asked && option_seen != HAK_OPT(sample_bytes)) record(HAK_OPT(sample_bytes));
    guard_look();
    hak_sample_tick(now_ms);
    hak_timeline_tick(now_ms);
    if (now_ms - threshold_ms >= 100) {
        threshold_ms = now_ms;
        threshold_look();
    }
    if (is_ours) hak_publish_held(begin_ns);
    hak_alone_end(&ticking);
}

static void on_shortage(void) {
    static hak_atomic_u32 told;
    uint32_t nobody = 0;
    if (rate_asked && hak_options.record[0] && hak_cas(&told, &nobody, 1)) dump_automatic("shortage");
}

void hak_watch_hang(void) {
    pid_started = hak_os_pid();
    hak_publish_start();
    hak_store_relaxed(&hak_hooks.forked, on_fork);
    hak_store_release(&hak_hooks.tick, on_tick);
}

void hak_watch_guards_at_start(void) {
    guard_look();
    hak_guard_listen(); /* now, for a child in a sandbox may not */
}

void hak_watch_guards_in_child(void) { hak_guard_listen_in_child(); }

void hak_watch_at_start(void) {
    hak_store_release(&hak_hooks.shortage, on_shortage);
    record(HAK_OPT(sample_bytes));
}

void hak_watch_at_exit(void) {
    enum { TURNS = 40000 }; /* some two seconds */
    if (!hak_options.record[0] || !hak_record_ready()) return;
    /* another thread's dump is waited for: it would end with the process, in the middle, and this one would not be written either */
    for (unsigned turn = 0; dump_automatic("exit") == -EBUSY && turn < TURNS; turn++) hak_os_yield(turn);
}
