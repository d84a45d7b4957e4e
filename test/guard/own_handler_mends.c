/* own_handler_mends.c - a handler that opens a page of the program's own goes on working. */
#include "guard.h"

static char *page;
static int mended;
static void mends(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_addr != page) _exit(96);
    mended += signal == SIGSEGV && mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
#ifdef REPORTED /* own_handler_mends_reported.c */
    if (!getenv("HAKMEM_CRASH_REPORT") && !getenv("HAK_TEST_EMULATED")) { /* which cannot start itself again */
        setenv("HAKMEM_CRASH_REPORT", "1", 1);
        execv("/proc/self/exe", argv);
        return 93;
    }
#endif
    char *block = guarded(16, 100, ANY);
    struct sigaction action = { .sa_sigaction = mends, .sa_flags = SA_SIGINFO };
    if (sigaction(SIGSEGV, &action, NULL) != 0) return 97;
    block_drop(block);
    block = guarded(16, 100, ANY);
    block_drop(block);
    for (int i = 0; i < 100; i++) {
        page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        touch_write(page);
        if (page[0] != 1) return 95;
    }
    announce("ends", "0");
    announce("silent", "yes");
    return mended == 100 ? 0 : 94;
}
