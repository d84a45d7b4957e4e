/* shortage_of_sizes.c - when memory is short, what is free in blocks of one size serves smaller sizes, too.
 *
 * Owns:   children that exec themselves under RLIMIT_AS.
 * Method: a child takes blocks of one size until there is NULL, frees half of them, one here, one there, and takes as many blocks of a smaller
 *         size. They may be as large as the blocks that are there, and are freed with the size that was asked for. One in a hundred may be
 *         missing: some of the first ones were borrowed of a class that is too large.
 *
 * ctest: native
 */
#include "expect.h"

#include <stdint.h>
#include <sys/resource.h>

enum { MOST = 1 << 20, LIMIT = 64 << 20 };
static char *block[MOST];

extern void free_sized(void *block, size_t bytes);
extern void free_aligned_sized(void *block, size_t align, size_t bytes);

static int limited(size_t large, size_t small, size_t align)
{
    size_t count = 0, freed = 0, got = 0;
    while (count < MOST && (block[count] = malloc(large)) != NULL)
        count++;
    REQUIRE(count > 1000 && count < MOST);
    for (size_t i = 0; i < count; i += 2, freed++) {
        free(block[i]);
        block[i] = NULL;
    }
    for (size_t i = 0; i < count; i += 2, got++) {
        block[i] = align > 16 ? aligned_alloc(align, small) : malloc(small);
        if (!block[i])
            break;
        EXPECT((uintptr_t)block[i] % align == 0 && malloc_usable_size(block[i]) >= small);
        memset(block[i], 0x5a, small);
    }
    EXPECT_SAY(got + freed / 100 >= freed, "%zu bytes after %zu, alignment %zu: %zu of %zu", small, large, align, got, freed);
    for (size_t i = 0; i < count; i++) {
        if (i % 2 == 0 && align > 16)
            free_aligned_sized(block[i], align, small);
        else
            free_sized(block[i], i % 2 == 0 ? small : large);
    }
    EXPECT_SAY(malloc(small) != NULL, "%zu bytes, all being free", small);
    return expect_failure_count != 0;
}

static void smaller_ones_are_to_be_had(char *program)
{
    static const char *const sizes[][3] = {{"100", "60", "16"}, {"1000", "600", "16"}, {"1000", "520", "16"}, {"3000", "1600", "16"},
                                           {"4000", "2100", "16"}, {"9000", "5000", "16"}, {"30000", "17000", "16"}, {"2000", "1280", "128"},
                                           {"80", "40", "16"}, {"144", "72", "16"}, {"544", "260", "16"}}; /* half and less, but less than twice the class */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            struct rlimit limit = {LIMIT, LIMIT};
            char *argv[] = {program, (char *)sizes[i][0], (char *)sizes[i][1], (char *)sizes[i][2], NULL};
            setrlimit(RLIMIT_AS, &limit);
            execv("/proc/self/exe", argv);
            _exit(99);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s bytes after %s: status %#x", sizes[i][1], sizes[i][0], (unsigned)status);
    }
}

int main(int argc, char **argv)
{
    if (argc > 3)
        _exit(limited(strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10)));
    smaller_ones_are_to_be_had(argv[0]);
    return expect_failure_count != 0;
}
