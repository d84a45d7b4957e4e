/* late_threads.c - the library's very first calls come from eight threads at once, after a dlopen; many times.
 *
 * Usage: late_threads LIBRARY. Each round is a child, so that the library is new to it. Every thread's heap must
 * be found without a thread at the end (hak_stats: dead_heap_count), or its memory would be lost. Says "fine".
 */
#include <dlfcn.h>
#include <hakmem/hakmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 1500 };
static void *(*allocate)(size_t, hak_site_t);
static void (*release)(void *, hak_site_t);
static pthread_barrier_t barrier;

static void *first_call(void *argument)
{
    pthread_barrier_wait(&barrier);
    void *block = allocate((size_t)argument * 100 + 1, 0);
    pthread_barrier_wait(&barrier);
    release(block, 0);
    return NULL;
}

static int round_run(const char *path)
{
    static struct hak_stats stats;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return 2;
    allocate = (void *(*)(size_t, hak_site_t))dlsym(handle, "hak_alloc_at");
    release = (void (*)(void *, hak_site_t))dlsym(handle, "hak_free_at");
    void (*stats_get)(struct hak_stats *, size_t) = (void (*)(struct hak_stats *, size_t))dlsym(handle, "hak_stats_get");
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, first_call, (void *)i) != 0)
            return 3;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    stats_get(&stats, sizeof stats);
    uint64_t with_thread = stats.heap_count - stats.dead_heap_count;
    if (with_thread > 1) {
        fprintf(stderr, "%llu heaps, %llu of them without a thread, after all threads ended\n", (unsigned long long)stats.heap_count,
                (unsigned long long)stats.dead_heap_count);
        return 4;
    }
    return 0;
}

int main(int argument_count, char **arguments)
{
    if (argument_count < 2)
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0)
            _exit(round_run(arguments[1]));
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0) {
            fprintf(stderr, "round %d: status %#x\n", round, (unsigned)status);
            return 1;
        }
    }
    puts("fine");
    return 0;
}
