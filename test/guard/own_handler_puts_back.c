/* own_handler_puts_back.c - a handler of the program's puts back what it had found and returns: the program dies of the signal. */
#include "guard.h"

static struct sigaction found;
static void puts_back(int signal)
{
    sigaction(signal, &found, NULL);
}

int main(void)
{
    char *block = guarded(16, 100, ANY);
    struct sigaction action = { .sa_handler = puts_back };
    if (sigaction(SIGSEGV, &action, &found) != 0) return 97;
    block_drop(block);
    block = guarded(16, 100, ANY);
    announce("ends", "SEGV");
    announce("silent", "yes");
    touch_read(hidden((void *)16));
    return 0;
}
