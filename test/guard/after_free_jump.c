/* after_free_jump.c - a function is called where a freed block is: who called it is told, though there is no code to ask. */
#include "guard.h"

NOIPA static void jump_there(char *code)
{
    ((void (*)(void))(uintptr_t)code)();
    __asm__ volatile("" ::: "memory");
}

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce_after_free("jump to", block + 16, block, 100);
    announce("ends", "SEGV");
    announce("stack jumped to", "jump_there main");
    announce("stack freed", "block_drop main");
    announce("stack allocated", "block_make guarded main");
    jump_there(block + 16);
    return 0;
}
