/* swapped_out.c - what mincore does not see may be swapped out, and still is what the program wrote: no calloc finds it.
 *
 * Here a filter (seccomp) stops each mincore, and the handler answers as after everything was swapped out.
 *
 * Owns:    the process, with the filter.
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
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define MIB ((size_t)1 << 20)
#define GRANULE ((size_t)64 << 10)

static volatile sig_atomic_t answered;

static void none_is_resident(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned char *page = (unsigned char *)registers[REG_RDX];
    for (size_t i = 0; i < ((size_t)registers[REG_RSI] + 4095) / 4096; i++)
        page[i] = 0;
    registers[REG_RAX] = 0;
    answered++;
}

static bool all_is_swapped_out(void)
{
    struct sigaction action = { .sa_sigaction = none_is_resident, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mincore, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof steps / sizeof *steps, steps };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* A site that seems to touch nothing of its blocks; slabs that are cut where they lay, and end. */
static void blocks_come_and_go(void)
{
    for (int i = 0; i < 3; i++) {
        char *block = malloc(3 * MIB);
        REQUIRE(block);
        memset(block, 0xaa, 3 * MIB);
        free(block);
    }
    for (size_t bytes = 300; bytes <= 2300; bytes += 400) {
        void *block[4];
        for (int i = 0; i < 4; i++)
            block[i] = malloc(bytes);
        for (int i = 0; i < 4; i++)
            free(block[i]);
    }
}

int main(void)
{
    if (!all_is_swapped_out())
        return EXPECT_SKIPPED;
    blocks_come_and_go();
    malloc_trim(0);
    for (size_t i = 0; i < 40; i++) {
        size_t bytes = GRANULE * (1 + i % 8);
        unsigned char *block = calloc(1, bytes);
        REQUIRE(block);
        for (size_t at = 0; at < bytes; at++)
            REQUIRE(block[at] == 0);
    }
    EXPECT(answered > 0);
    return EXPECT_RESULT();
}
#endif
