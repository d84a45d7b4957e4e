/* refused_fixed.c - the kernel unmaps what is there, and then refuses the new mapping: no block comes to lie on the hole.
 *
 * Kernels before 6.12 do so where vm.overcommit_memory is 2 and the limit is reached. Here a filter (seccomp) stops each mmap with
 * MAP_FIXED, and the handler does what such a kernel does.
 *
 * Owns:    children, each with the filter.
 *
 * ctest: native
 */
#include "expect.h"

#if !defined(__x86_64__)
int main(void) { return EXPECT_SKIPPED; }
#else
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#define MIB ((size_t)1 << 20)

static void unmap_and_refuse(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    syscall(SYS_munmap, registers[REG_RDI], registers[REG_RSI]);
    registers[REG_RAX] = -ENOMEM;
}

static bool fixed_is_refused(void)
{
    struct sigaction action = { .sa_sigaction = unmap_and_refuse, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_FIXED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof steps / sizeof *steps, steps };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* The pages of a block that grows move elsewhere, and new ones are wanted in their place. */
static int a_large_block_moves(void)
{
    char *block = malloc(64 * MIB), *behind = malloc(64 * MIB);
    REQUIRE(block && behind);
    memset(block, 1, 64 * MIB);
    memset(behind, 2, MIB);
    if (!fixed_is_refused())
        return EXPECT_SKIPPED;
    block = realloc(block, 200 * MIB);
    REQUIRE(block);
    for (size_t i = 0; i < 64 * MIB; i += 4096)
        EXPECT(block[i] == 1);
    char *other = malloc(60 * MIB);
    if (other)
        memset(other, 3, 60 * MIB);
    return 0;
}

/* Halves of chunks become huge, by a new mapping. */
static int a_heap_grows_densely(void)
{
    for (int i = 0; i < 300000; i++)
        memset(malloc(100), 1, 100);
    if (!fixed_is_refused())
        return EXPECT_SKIPPED;
    for (int i = 0; i < 3000000; i++) {
        char *block = malloc(100);
        if (!block)
            break;
        memset(block, 1, 100);
    }
    return 0;
}

int main(void)
{
    static int (*const PARTS[])(void) = { a_large_block_moves, a_heap_grows_densely };
    for (size_t i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            int result = PARTS[i]();
            _exit(expect_failure_count ? 1 : result);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXPECT_SKIPPED)
            return EXPECT_SKIPPED;
        EXPECT_SAY(status == 0, "part %zu: status %#x", i, (unsigned)status);
    }
    return EXPECT_RESULT();
}
#endif
