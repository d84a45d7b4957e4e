/* at_run_time.c - guards are turned off and on while the program runs. */
#include "guard.h"

int main(void)
{
    struct timespec pause = { 0, 30 * 1000 * 1000 };
    for (int round = 0; round < 2; round++) {
        free(guarded(16, 100, ANY));
        if (hak_option_set("guard", "0") != 0) return 97;
        nanosleep(&pause, NULL); /* a visit sees it 20 ms later at the latest */
        for (int i = 0; i < 5000; i++) free(block_make(16, 100));
        uint64_t before = hakmem_published.guarded;
        for (int i = 0; i < 5000; i++) {
            void *block = block_make(16, 100);
            if (guard_row(block)) return 96;
            free(block);
        }
        if (hakmem_published.guarded != before) return 95;
        if (hak_option_set("guard", "1") != 0) return 94;
        nanosleep(&pause, NULL);
        for (int i = 0; i < 5000; i++) free(block_make(16, 100));
    }
    announce("ends", "0");
    announce("silent", "yes");
    return 0;
}
