/* key.c - a call site's key: told apart by address and by height, the same in each thread and in each run.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "os/stack.h"
#include "heap/key.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static struct hak_caller who(void) {
    struct hak_caller caller = HAK_CALLER();
    __asm__ volatile("" ::: "memory");
    return caller;
}
__attribute__((noinline)) static struct hak_caller wrapper(void) {
    char room[48];
    __asm__ volatile("" : : "r"(room) : "memory");
    struct hak_caller caller = who();
    __asm__ volatile("" : : "r"(room) : "memory");
    return caller;
}
__attribute__((noinline)) static struct hak_caller deeper(void) {
    char room[96];
    __asm__ volatile("" : : "r"(room) : "memory");
    struct hak_caller caller = wrapper();
    __asm__ volatile("" : : "r"(room) : "memory");
    return caller;
}

static uint32_t height_of(struct hak_caller caller) { return hak_caller_height(caller, hak_os_stack_top()); }

static void a_wrappers_callers_differ_by_height(void **state) {
    (void)state;
    struct hak_caller near = wrapper(), far = deeper();
    assert_ptr_equal(near.address, far.address);
    assert_true(height_of(far) > height_of(near));
    uintptr_t top = hak_os_stack_top();
    assert_true(hak_caller_key(near, top, 3) != hak_caller_key(far, top, 3));
    assert_true(hak_caller_key(near, top, 3) != hak_caller_key(near, top, 4));
    assert_true(hak_caller_key(near, top, 3) == hak_caller_key(wrapper(), top, 3));
}

static void *thread_height(void *height) {
    *(uint32_t *)height = height_of(wrapper());
    return NULL;
}

static uint32_t height_in_thread(void *stack, size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    uint32_t height = 0;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    if (stack) assert_int_equal(pthread_attr_setstack(&attributes, stack, bytes), 0);
    else assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
    assert_int_equal(pthread_create(&thread, &attributes, thread_height, &height), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    return height;
}

static void threads_with_other_stacks_have_the_same_heights(void **state) {
    (void)state;
    uint32_t height = height_in_thread(NULL, 1 << 20);
    assert_true(height < (1 << 20) / 8);
    assert_int_equal(height, height_in_thread(NULL, 8 << 20));
    void *stack = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    assert_int_equal(height, height_in_thread(stack, 2 << 20));
    munmap(stack, 2 << 20);
}

/* In a run with another environment and other arguments. */
static uint32_t height_in_run(const char *program, const char *more, const char *argument) {
    char line[64] = "";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        char *environment[] = { (char *)(uintptr_t)more, NULL };
        execle(program, "key", "height", argument, (char *)NULL, environment);
        _exit(1);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; length < sizeof line - 1 && (got = read(ends[0], line + length, sizeof line - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    int status;
    assert_true(waitpid(child, &status, 0) == child && status == 0);
    return (uint32_t)atoi(line);
}

static void another_run_has_the_same_heights(void **state) {
    (void)state;
    char program[4096], large[3001];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = 0;
    memset(large, 'x', sizeof large - 1);
    large[1] = '=';
    large[sizeof large - 1] = 0;
    uint32_t height = height_in_run(program, "A=1", NULL);
    assert_true(height > 0 && height < 1 << 20);
    assert_int_equal(height, height_in_run(program, large, NULL));
    assert_int_equal(height, height_in_run(program, "A=1", "one more"));
    assert_int_equal(height, height_in_run(program, large, large));
}

static void keys_spread(void **state) { /* 4,096 sites 5 bytes apart, in 2^13 slots by the high bits: few share one */
    (void)state;
    static unsigned char slot[1 << 13];
    unsigned shared = 0;
    for (unsigned i = 0; i < 4096; i++) {
        uint64_t key = hak_site_key((const void *)(uintptr_t)(0x401000 + i * 5), 100 + i % 7, 1 + i % 32);
        assert_true(key != 0);
        shared += slot[key >> 51]++ > 0;
    }
    assert_true(shared < 1100); /* 872 expected of a random function */
}

int main(int count, char **words) {
    if (count >= 2 && !strcmp(words[1], "height")) {
        printf("%u\n", height_of(wrapper()));
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrappers_callers_differ_by_height),
        cmocka_unit_test(threads_with_other_stacks_have_the_same_heights),
        cmocka_unit_test(another_run_has_the_same_heights),
        cmocka_unit_test(keys_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
