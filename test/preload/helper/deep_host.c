/* deep_host.c - loads helper/deep_plugin.c so that it sees libc's functions first, and passes blocks both ways.
 *
 * Usage: deep_host PLUGIN [THREADS [dlmopen]]. Threads open it at the same moment. Says "fine" at its end.
 * -DOWN_MALLOC: with a malloc of its own, which counts: what libc hands out must come from it, with and without HAKMEM.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OWN_MALLOC
static char memory[1 << 24];
static size_t used;
static long own_frees;
void *malloc(size_t bytes) {
    size_t at = __atomic_fetch_add(&used, (bytes + 31) & ~(size_t)15, __ATOMIC_RELAXED);
    if (at + bytes + 32 > sizeof memory) return NULL;
    memcpy(memory + at, &bytes, sizeof bytes);
    return memory + at + 16;
}
void free(void *block) { if (block) __atomic_fetch_add(&own_frees, 1, __ATOMIC_RELAXED); }
void *calloc(size_t count, size_t bytes) { return memset(malloc(count * bytes), 0, count * bytes); }
void *realloc(void *block, size_t bytes) {
    void *other = malloc(bytes);
    size_t before = 0;
    if (block) memcpy(&before, (char *)block - 16, sizeof before);
    return other && block ? memcpy(other, block, before < bytes ? before : bytes) : other;
}
#endif

static const char *plugin;
static int by_dlmopen;
static pthread_barrier_t together;

static void fail(const char *what) {
    fprintf(stderr, "deep_host: %s\n", what);
    exit(1);
}

static void *work(void *unused) {
    (void)unused;
    pthread_barrier_wait(&together);
    int mode = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    void *library = by_dlmopen ? dlmopen(LM_ID_BASE, plugin, mode) : dlopen(plugin, mode);
    if (!library) fail(dlerror());
    void (*take)(void *) = (void (*)(void *))dlsym(library, "plugin_take");
    void *(*give)(size_t) = (void *(*)(size_t))dlsym(library, "plugin_give");
    void *(*grow)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "plugin_grow");
    int (*alone)(void) = (int (*)(void))dlsym(library, "plugin_alone");
    if (!take || !give || !grow || !alone) fail("the plugin's functions are not there");
    for (size_t bytes = 1; bytes < 300000; bytes += bytes / 3 + 1) {
#ifndef OWN_MALLOC /* the plugin's own blocks are libc's then, and nobody else may free them */
        char *block = malloc(bytes);
        memset(block, 7, bytes);
        block = grow(block, bytes * 2);
        if (block[bytes - 1] != 7) fail("realloc in the plugin lost contents");
        take(block);
        block = give(bytes);
        memset(block, 1, bytes);
        free(block);
#endif
        if (!alone()) fail("the plugin by itself");
    }
    return NULL;
}

int main(int argc, char **argv) {
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    pthread_t threads[64];
    if (argc < 2 || count > 64) fail("usage: deep_host PLUGIN [THREADS]");
    plugin = argv[1];
    by_dlmopen = argc > 3;
    pthread_barrier_init(&together, NULL, count);
    for (unsigned i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
#ifdef OWN_MALLOC
    char *text = strdup("of the program");
    if (text < memory || text >= memory + sizeof memory) fail("libc's strdup did not ask the program's malloc");
    free(text);
    if (!own_frees) fail("the program's free was not called");
#endif
    puts("fine");
    return 0;
}
