/* heap_null.c - a block is wanted of no heap: hak_heap_new gave NULL, and nobody looked. */
#include "misuse.h"

int main(void)
{
    free(hidden(malloc(80))); /* the thread has a heap of its own */
    expect("hak_heap_malloc: %s is no heap: never made, or destroyed already", "(nil)");
    free(hidden(hak_heap_malloc((hak_heap_t *)hidden(NULL), 80)));
    return 0;
}
