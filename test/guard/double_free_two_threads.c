/* double_free_two_threads.c - a block is freed by its thread and then by another. */
#include "guard.h"

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce("expect", "hakmem: free: double free of %p: this block of 100 bytes is free already", (void *)block);
    announce("ends", "ABRT");
    announce("stack passed to the library", "thread_free");
    announce("stack freed", "block_drop main");
    in_thread(thread_free, block);
    return 0;
}
