/* room.h - what the tests of single rooms share: a window of address space, dice, and no front. After cmocka.h. */
#ifndef HAK_TEST_ROOM_H
#define HAK_TEST_ROOM_H

#include "memory/region.h"
#include "rules/options.h"

#include <stdlib.h>

/* Under a sanitizer the window is smaller: its shadow takes most of the address space. What control group the test runs in is not to count.
 * The bound on free memory is enforced at once: of the grace test/unit/purge.c has its own tests. */
static inline void room_region_start(void) {
    hak_options.cgroup = 0;
    hak_options.free_grace_ms = 0;
    const char *gb = getenv("HAKMEM_REGION_GB");
    assert_true(hak_region_start(gb ? (size_t)atoi(gb) : 0));
}

static inline uint64_t dice_next(uint64_t *dice) {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    return *dice ^= *dice << 17;
}

static inline void room_fail(const char *what, const char *file, int line) {
    print_error("%s does not hold\n", what);
    _fail(file, line);
}

/* cmocka's own asserts are too slow for a hundred million of them */
#define REQUIRE(condition) ((condition) ? (void)0 : room_fail(#condition, __FILE__, __LINE__))

#endif
