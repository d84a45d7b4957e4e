/* after_fork.c - a block of before the fork is freed and read in the child. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY), *other = guarded(16, 100, ANY);
    pid_t child = fork();
    if (child == 0) {
        block_drop(other);
        block_drop(block);
        char *fresh = guarded(16, 50, ANY);
        block_drop(fresh);
        announce_after_free("read of", block + 3, block, 100);
        announce("stack freed", "block_drop main");
        announce("stack allocated", "block_make guarded main");
        touch_read(block + 3);
        _exit(1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) return 96;
    block[3] = 1; /* the parent's lives on */
    block_drop(block);
    block_drop(other);
    announce("ends", "0");
    return 0;
}
