/* sampling_coroutine.c - a coroutine's stack that started another is unmapped, and the other goes on: its samples do no harm.
 *
 * Owns:   itself, started again, a sample per 100 bytes or so; two stacks in one mapping. The frames of the upper one stay in what was seen before,
 *         so that each sample compares them with what is there now.
 *
 * ctest: native
 */
#include "expect.h"

#include <alloca.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STACK = 1 << 18, ROUNDS = 4000 };
static char *stacks;

/* Has a frame pointer, from which the caller's frame is known whatever the stack pointer is. */
__attribute__((noinline)) static void on_stack(void (*function)(void), char *top, size_t any)
{
    volatile char *room = (volatile char *)alloca(any);
    room[0] = 1;
#if defined(__x86_64__)
    __asm__ volatile("mov %0, %%rsp\n\tcall *%1" ::"r"(top), "r"(function) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mov sp, %0\n\tblr %1" ::"r"(top), "r"(function) : "memory", "x30");
#endif
    room[0] = 2;
    _exit(3);
}

__attribute__((noinline)) static void *site(size_t bytes)
{
    void *block = malloc(bytes);
    __asm__ volatile("" ::"r"(block) : "memory");
    return block;
}

__attribute__((noinline)) static void lower(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        free(site(200));
        if (i == ROUNDS / 2)
            REQUIRE(munmap(stacks + STACK, STACK) == 0);
    }
    _exit(0);
}

__attribute__((noinline)) static void upper(void)
{
    on_stack(lower, stacks + STACK - 64, 100);
}

int main(int count, char **words)
{
    if (count == 2) {
        stacks = (char *)mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(stacks != (char *)MAP_FAILED);
        on_stack(upper, stacks + 2 * STACK - 64, 100);
    }
    static const char *const OPTIONS[] = { "HAKMEM_RECORD=/dev/null", "HAKMEM_GUARD=1" };
    setenv("HAKMEM_SAMPLE_BYTES", "64", 1);
    setenv("HAKMEM_SAMPLE_MOST", "0", 1);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            putenv((char *)(uintptr_t)OPTIONS[i]);
            execl("/proc/self/exe", words[0], "run", (char *)NULL);
            _exit(127);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s: status %#x", OPTIONS[i], (unsigned)status);
    }
    return EXPECT_RESULT();
}
