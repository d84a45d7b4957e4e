/* own_handler_mends_reported.c - the same with HAKMEM_CRASH_REPORT=1: what the program mends is no crash, and nothing is said of it. */
#define REPORTED
#include "own_handler_mends.c"
