/* new_without_runtime.c - operator new fails in a program that has no C++ runtime to throw std::bad_alloc. */
#include "misuse.h"

extern void *new_plain(size_t size) __asm__("_Znwm");

int main(void)
{
    expect("operator new: no memory for %zu bytes, and no C++ runtime to throw std::bad_alloc", (size_t)PTRDIFF_MAX + 1);
    hidden(new_plain((size_t)PTRDIFF_MAX + 1));
    return 0;
}
