/* sized_delete_one_less.c - a size that is the class's, but not what was asked for. */
#include "secure.h"

int main(void)
{
    warm_up(100);
    void *block = malloc(100);
    expect("delete: %p is a block of 100 bytes, but the caller says 99", block);
    delete_sized(hidden(block), 99);
    return 0;
}
