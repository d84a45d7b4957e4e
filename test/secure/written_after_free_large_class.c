/* written_after_free_large_class.c - the same of 20,000 bytes, the last of them. */
#include "secure.h"

int main(void) { return write_after_free(20000, 20608, 19999); }
