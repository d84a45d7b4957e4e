/* two_at_once.c - two threads read a freed block at the same moment: reports are whole, one after the other, and the program dies once. */
#include "guard.h"

static pthread_barrier_t barrier;

static void *reader(void *block)
{
    pthread_barrier_wait(&barrier);
    touch_read(block);
    return NULL;
}

int main(void)
{
    char *block = guarded(16, 100, ANY);
    block_drop(block);
    announce_after_free("read of", block, block, 100);
    announce("ends", "SEGV");
    announce("reports", "several"); /* one after the other, till the first one's fault ends the program */
    announce("stack read", "touch_read reader");
    announce("stack freed", "block_drop main");
    pthread_t thread[4];
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, reader, block);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    return 0;
}
