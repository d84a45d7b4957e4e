/* late_host.c - a program that knows nothing of HAKMEM loads it by dlopen, uses hak_*, and unloads it.
 *
 * Usage: late_host LIBRARY [SECOND_COPY]. Its own malloc stays what it was (RTLD_LOCAL). Says "fine".
 */
#include <dlfcn.h>
#include <hakmem/hakmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x) ((x) ? (void)0 : (printf("late_host:%d: %s\n", __LINE__, #x), exit(1)))

static void *(*allocate)(size_t, hak_site_t);
static void (*release)(void *, hak_site_t);

static void *thread_work(void *argument)
{
    for (int round = 0; round < 20; round++) {
        void *blocks[300];
        for (int i = 0; i < 300; i++) {
            blocks[i] = allocate((size_t)i * 200, 0);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], i, (size_t)i * 200);
        }
        for (int i = 0; i < 300; i++)
            release(blocks[i], 0);
    }
    return argument;
}

static void library_use(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        printf("late_host: %s\n", dlerror());
        exit(1);
    }
    const char *(*version)(void) = (const char *(*)(void))dlsym(handle, "hak_version");
    size_t (*usable)(const void *) = (size_t(*)(const void *))dlsym(handle, "hak_usable_size");
    size_t (*json)(char *, size_t) = (size_t(*)(char *, size_t))dlsym(handle, "hak_stats_json");
    allocate = (void *(*)(size_t, hak_site_t))dlsym(handle, "hak_alloc_at");
    release = (void (*)(void *, hak_site_t))dlsym(handle, "hak_free_at");
    CHECK(version != NULL && usable != NULL && json != NULL && allocate != NULL && release != NULL);
    CHECK(strcmp(version(), HAKMEM_VERSION) == 0);
    void *block = allocate(1000, 0), *own = malloc(1000);
    CHECK(usable(block) >= 1000);
    strcpy(block, "held by the library");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, thread_work, NULL) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(strcmp(block, "held by the library") == 0);
    free(own);
    release(block, 0);
    CHECK(json(NULL, 0) > 100);
    CHECK(dlclose(handle) == 0);
}

static void *live_across(void *argument)
{
    pthread_barrier_t *barrier = argument;
    release(allocate(100, 0), 0); /* this thread has a heap in the library, and ends after the unloading */
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    free(malloc(100));
    return NULL;
}

int main(int argument_count, char **arguments)
{
    CHECK(argument_count >= 2);
    for (int i = 0; i < 5; i++)
        library_use(arguments[1]);
    if (argument_count > 2) {
        library_use(arguments[2]);
        void *one = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), *two = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
        CHECK(one != NULL && two != NULL && one != two);
        void *(*allocate_one)(size_t, hak_site_t) = (void *(*)(size_t, hak_site_t))dlsym(one, "hak_alloc_at");
        void *(*allocate_two)(size_t, hak_site_t) = (void *(*)(size_t, hak_site_t))dlsym(two, "hak_alloc_at");
        CHECK(allocate_one != allocate_two);
        void *first = allocate_one(500, 0), *second = allocate_two(500, 0);
        CHECK(first != NULL && second != NULL && first != second);
        ((void (*)(void *, hak_site_t))dlsym(one, "hak_free_at"))(first, 0);
        ((void (*)(void *, hak_site_t))dlsym(two, "hak_free_at"))(second, 0);
        dlclose(one);
        dlclose(two);
    }
    pthread_barrier_t barrier;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    void *handle = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL);
    allocate = (void *(*)(size_t, hak_site_t))dlsym(handle, "hak_alloc_at");
    release = (void (*)(void *, hak_site_t))dlsym(handle, "hak_free_at");
    CHECK(pthread_create(&thread, NULL, live_across, &barrier) == 0);
    pthread_barrier_wait(&barrier);
    dlclose(handle);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    for (int i = 0; i < 1000; i++)
        free(malloc((size_t)i * 10));
    puts("fine");
    return 0;
}
