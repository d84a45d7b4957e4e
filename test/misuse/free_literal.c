/* free_literal.c - free of a string literal. */
#include "misuse.h"

int main(void)
{
    const char *literal = "a string literal";
    expect_foreign("free", literal);
    free(hidden(literal));
    return 0;
}
