/* control_choice.c - which block is next is chance: blocks asked for one after another do not lie in a row, and one that was freed is hardly ever
 * the next. */
#include "secure.h"

int main(void)
{
    enum { COUNT = 3000 };
    static char *block[COUNT];
    int in_a_row = 0, again = 0;
    warm_up(100);
    for (int i = 0; i < COUNT; i++)
        block[i] = malloc(100);
    for (int i = 1; i < COUNT; i++)
        in_a_row += block[i] == block[i - 1] + 112;
    for (int i = 0; i < COUNT; i++) {
        free(block[i]);
        char *next = malloc(100);
        again += next == block[i];
        block[i] = next;
    }
    return in_a_row > COUNT / 10 || again > COUNT / 50;
}
