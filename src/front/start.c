/* start.c - before the first block, at a thread's end, and at the end of the program.
 *
 * The first allocation may come before any constructor has run (the dynamic linker's own, when it has set up the thread's variables), so everything here
 * happens on demand: hak_malloc_slow() finds a thread without a heap. The constructor does it at the latest,
 * and starts what may allocate itself.
 *
 * Threads:   the first call is made while there is one thread, except after a dlopen.
 */
#include "front/front.h"

#include "front/describe.h"
#include "front/metrics.h"
#include "front/report.h"
#include "learn/learn.h"
#include "learn/lifetime.h"
#include "memory/purge.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/crash.h"
#include "watch/site.h"
#include "watch/watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

extern char **environ;

static hak_atomic_u32 started;
static hak_atomic_u32 key_plus_1; /* of the thread key; 0: none could be had */

static void thread_ends(void *heap) {
    if (heap == hak_self) hak_heap_death(heap);
}

/* Once: a destructor that allocates after ours borrows a heap, and nobody need be told of its end. Where others took all keys
 * before us, or there is no memory for one, only the first thread has a heap of its own: of the others it would
 * be there for ever. */
static bool thread_begins(struct hak_heap *heap) {
    int saved = errno;
    uint32_t key = hak_load_relaxed(&key_plus_1);
    bool is_told = key && pthread_setspecific((pthread_key_t)(key - 1), heap) == 0;
    errno = saved;
    return HAK_LIKELY(is_told) || hak_os_pid() == hak_os_tid();
}

static void options_read(void) {
    static hak_atomic_u32 read;
    if (hak_load_relaxed(&read) || !environ) return; /* NULL: a .preinit_array allocates; our constructor comes later */
    hak_store_relaxed(&read, 1);
    hak_options_load(environ);
}

/* fork() tells the child before its first own step, while it has one thread: the epoch moves when nobody is in the middle of what uses it.
 * Raw clone and _Fork leave it to the page that the kernel wipes, found on the first slow path. Where the kernel does not wipe it, this is the
 * only word. */
static void child_begins(void) {
    if (!hak_load_acquire(&started)) return;
    if (!hak_region.fork_page_wipes) hak_store_relaxed(hak_region.fork_page, 0);
    hak_fork_child(hak_self);
    if (hak_heap_is_none(hak_self)) hak_fork_without_heap();
    hak_shortage_in_child();
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_family_any)) && !hak_heap_is_gone(hak_self)) { /* any thread may clear one, and needs all of it */
        struct hak_heap *heap = hak_front_heap();
        if (heap && heap->is_survivor) hak_fork_rebuild(heap);
    }
    if (HAK_OPT(guard)) hak_watch_guards_in_child();
    hak_report_in_child();
}

/* What libc takes a lock for is asked of it before main, where no other thread forks: musl before 1.2.4 leaves a child the lock of its keys as
 * it was, and with it in another thread's hand none of the child's threads could end; that of its first fork handler likewise. The first
 * block asks where it comes earlier. */
static HAK_COLD void key_make(void) {
    if (hak_load_relaxed(&key_plus_1)) return;
    pthread_key_t made;
    uint32_t none = 0;
    if (pthread_key_create(&made, thread_ends) == 0 && !hak_cas(&key_plus_1, &none, made + 1)) pthread_key_delete(made);
}
static HAK_COLD void child_handler_set(void) {
    static hak_atomic_u32 set;
    uint32_t none = 0;
    if (!hak_cas(&set, &none, 1)) return;
    int saved = errno;
    pthread_atfork(NULL, NULL, child_begins); /* may allocate. May fail: then the page tells the child */
    errno = saved;
}

HAK_COLD bool hak_start(void) {
    if (HAK_LIKELY(hak_load_acquire(&started))) return true;
    options_read();
    if (HAK_OPT(word_bytes) != HAK_WORD_BYTES) hak_window_set(HAK_OPT(word_bytes));
    if (!hak_region_start(HAK_OPT(region_gb))) return false;
    if (hak_region.is_limited) hak_classes_compact(); /* the same for every thread that comes here */
    if (HAK_LIKELY(!HAK_OPT(secure))) hak_store_relaxed(&hak_secure.is_off, 1);
    else if (!hak_front_secure_begin()) return false;
    /* two first calls at once, after a dlopen, both do this; the second key is given back */
    __atomic_store_n(&hak_slab_misuse, hak_misuse, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_heap_on_birth, thread_begins, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_heap_on_shortage, hak_front_short, __ATOMIC_RELAXED);
    __atomic_store_n(&hak_purge_on_empty_chunk, hak_slab_chunk_empty, __ATOMIC_RELAXED);
    key_make();
    static hak_atomic_u32 hung;
    uint32_t nobody = 0;
    if (hak_cas(&hung, &nobody, 1)) { /* what allocation does without, and one thread is to write */
        hak_learn_lifetime_start();
        hak_watch_hang();
        __atomic_store_n(&hak_front_on_site_alloc, hak_site_note_alloc, __ATOMIC_RELAXED);
        __atomic_store_n(&hak_front_on_site_free, hak_site_note_free, __ATOMIC_RELAXED);
    }
    nobody = 0;
    if (!hak_cas(&started, &nobody, 1)) return true;
    hak_os_barrier_begin();
    child_handler_set();
    return true;
}

/* --- the optional thread that returns pages while the program is idle --- */

static void *background(void *unused) {
    (void)unused;
    for (unsigned turn = 1;; turn++) {
        struct timespec pause = { 0, 100 * 1000 * 1000 };
        nanosleep(&pause, NULL);
        if (turn % 10 == 0 && hak_os_is_last_thread()) exit(EXIT_SUCCESS); /* as libc does when the program's last thread ends */
        struct hak_heap *heap = hak_front_heap();
        if (!heap) continue;
        heap->tick = 0;
        if (heap->is_survivor) hak_fork_rebuild(heap); /* it asks for no slab itself */
        hak_visit_chores(heap);
    }
    return NULL;
}

static void background_start(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    sigset_t all, old;
    sigfillset(&all); /* the program's signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_create(&thread, &attributes, background, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
}

/* Only what was asked for, and what libc takes locks for: a program that never allocates pays for nothing else. */
__attribute__((constructor(101), cold)) static void program_begins(void) {
    options_read();
    key_make();
    child_handler_set();
    if (HAK_OPT(stats) || hak_options.report[0] || hak_options.record[0] || hak_options.policy[0]) hak_report_at_start();
    if (HAK_OPT(crash_report)) hak_crash_at_start(hak_describe_address);
    hak_watch_on_failure = hak_report_failure_say;
    hak_learn_line_to = hak_report_descriptor;
    hak_learn_on_shown = hak_watch_publish_learn;
    hak_learn_lifetime_start(); /* before the policy file is read */
    if (hak_learn_start()) pthread_atfork(NULL, hak_learn_forked, hak_learn_in_child);
    hak_report_on_json = hak_learn_json;
    hak_metrics_on_recording = hak_watch_metrics;
    if (hak_options.record[0] && hak_start()) hak_watch_at_start();
    if (HAK_OPT(guard) && hak_start()) hak_watch_guards_at_start();
    if (HAK_OPT(background) && hak_start()) {
        background_start();
        pthread_atfork(NULL, NULL, background_start);
    }
}

__attribute__((destructor(101))) static void program_ends(void) {
    hak_learn_end();
    hak_watch_at_exit();
    hak_report_at_exit();
}
