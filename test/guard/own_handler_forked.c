/* own_handler_forked.c - a handler of the program's that came after guarded blocks, and before a fork: the child's report is made all the same. */
#include "guard.h"

static void own(int signal, siginfo_t *info, void *context)
{
    (void)context;
    _exit(signal == SIGSEGV && info->si_addr ? 41 : 97);
}

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    struct sigaction action = { .sa_sigaction = own, .sa_flags = SA_SIGINFO };
    if (sigaction(SIGSEGV, &action, NULL) != 0) return 97;
    pid_t child = fork();
    if (child == 0) {
        announce_after_free("read of", block, block, 100);
        announce("stack read", "touch_read main");
        touch_read(block);
        _exit(96);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 41) return 95;
    announce("ends", "0");
    return 0;
}
