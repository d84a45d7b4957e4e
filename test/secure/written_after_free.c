/* written_after_free.c - one of many freed blocks of 100 bytes is written to, and handed out some time later. */
#include "secure.h"

int main(void) { return write_after_free(100, 112, 9); }
