/* sampling_register.c - a caller that keeps whatever it likes in the frame pointer's register is sampled, and lives.
 *
 * Owns:   itself, started again with a sample per 1,000 bytes or so. Code without frame pointers may have -8 there, or -16: to
 *         which the size of a frame was once added.
 *
 * ctest: native
 */
#include "expect.h"

#include "../../src/watch/published.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern struct hak_published hakmem_published __attribute__((weak));

typedef void *allocator(size_t bytes);
void *sampling_call_with(size_t bytes, allocator *function, uintptr_t frame);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl sampling_call_with\n"
        ".type sampling_call_with, @function\n"
        "sampling_call_with:\n"
        "    .cfi_startproc\n"
        "    push %rbp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset rbp, 0\n"
        "    mov %rdx, %rbp\n"
        "    call *%rsi\n"
        "    pop %rbp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    .cfi_restore rbp\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size sampling_call_with, . - sampling_call_with\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl sampling_call_with\n"
        ".type sampling_call_with, %function\n"
        "sampling_call_with:\n"
        "    .cfi_startproc\n"
        "    stp x29, x30, [sp, #-16]!\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset x29, -16\n"
        "    .cfi_offset x30, -8\n"
        "    mov x29, x2\n"
        "    blr x1\n"
        "    ldp x29, x30, [sp], #16\n"
        "    .cfi_def_cfa_offset 0\n"
        "    .cfi_restore x29\n"
        "    .cfi_restore x30\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size sampling_call_with, . - sampling_call_with\n");
#endif

static void *by_malloc(size_t bytes) { return malloc(bytes); }
static void *by_calloc(size_t bytes) { return calloc(1, bytes); }
static void *by_realloc(size_t bytes) { return realloc(malloc(1), bytes); }

static uintptr_t value;

static void no_harm(void)
{
    static allocator *const functions[] = { malloc, by_malloc, by_calloc, by_realloc };
    uint64_t before = hakmem_published.samples;
    unsigned count = 0;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (size_t bytes = 16; bytes < 100000; bytes += bytes / 8 + 1, count++) {
            void *block = sampling_call_with(bytes, functions[f], value);
            REQUIRE(block != NULL);
            free(block);
        }
    EXPECT_SAY(hakmem_published.samples - before > count / 4, "%llu samples of %u", (unsigned long long)(hakmem_published.samples - before), count);
}

static uintptr_t value_of(int which)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)15;
    const uintptr_t values[] = { (uintptr_t)-8, (uintptr_t)-16, (uintptr_t)-24, (uintptr_t)-1, 0, 1, 8, 4096, here, here + 1, here + 8, here + 65536,
                                 here - 65536, here + (1 << 30), (uintptr_t)INTPTR_MAX - 7, (uintptr_t)INTPTR_MIN };
    enum { COUNT = sizeof values / sizeof *values };
    return which < COUNT ? values[which] : (uintptr_t)1 << 63 >> (which - COUNT);
}

/* A thread's stack, and what was mapped above it and is no more. */
enum { STACK_BYTES = 1 << 20 };
static char *room;

static void *above_the_stack(void *argument)
{
    value = (uintptr_t)room + 2 * STACK_BYTES; /* within the mapping while the stack's bounds are found */
    for (int i = 0; i < 100; i++)
        free(malloc(4000));
    EXPECT(hakmem_published.samples > 0);
    REQUIRE(munmap(room + STACK_BYTES, 3 * STACK_BYTES) == 0);
    no_harm();
    return argument;
}

static void unmapped_memory_is_no_harm(void)
{
    room = (char *)mmap(NULL, 4 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(room != (char *)MAP_FAILED);
    pthread_attr_t attributes;
    pthread_t thread;
    REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, room, STACK_BYTES) == 0);
    REQUIRE(pthread_create(&thread, &attributes, above_the_stack, NULL) == 0);
    pthread_join(thread, NULL);
}

/* Each value in a process of its own: a caller whose frame pointers lead nowhere is not tried again. */
int main(int count, char **words)
{
    enum { ABOVE = 40, VALUES };
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    if (count == 2) {
        int which = atoi(words[1]);
        value = value_of(which);
        if (which == ABOVE) RUN(unmapped_memory_is_no_harm);
        else RUN(no_harm);
        return expect_failure_count != 0;
    }
    setenv("HAKMEM_RECORD", "/dev/null", 1);
    setenv("HAKMEM_SAMPLE_BYTES", "1024", 1);
    setenv("HAKMEM_SAMPLE_MOST", "0", 1);
    for (int i = 0; i < VALUES; i++) {
        char number[12];
        snprintf(number, sizeof number, "%d", i);
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", words[0], number, (char *)NULL);
            _exit(127);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "case %d, %#zx in the register: status %#x", i, i == ABOVE ? 0 : (size_t)value_of(i), status);
    }
    return expect_failure_count != 0;
}
