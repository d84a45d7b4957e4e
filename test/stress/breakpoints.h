/* breakpoints.h - the library's instructions, one of which at a time is a breakpoint, and calls that run into it.
 *
 * Owns:      the library's text, writable; `armed`.
 * Threads:   who arms is who runs into it; disarmed by him, or by another while he is in the handler of SIGTRAP.
 * Why:       a signal or a fork that comes by the clock meets an instruction that runs once in a thousand calls once a month.
 */
#ifndef HAK_TEST_BREAKPOINTS_H
#define HAK_TEST_BREAKPOINTS_H

#include "stress.h"

#include <dlfcn.h>
#include <sys/mman.h>

enum { INSTRUCTIONS_MAX = 200000, BREAKPOINT = 0xcc };

/* --- breakpoints --- */

static unsigned char *instructions[INSTRUCTIONS_MAX];
static size_t instruction_count;
/* Those that were met, by number: their neighbours will be. */
static uint32_t met[INSTRUCTIONS_MAX];
static size_t met_count;
static bool is_met[INSTRUCTIONS_MAX];
static uint16_t drawn[INSTRUCTIONS_MAX];
static unsigned char *volatile armed;
static unsigned char instead;

/* "  1a2b:\tmov    %rsp,%rbp": what begins with spaces, digits and a colon. */
static void instructions_find(void)
{
    Dl_info info;
    char line[4096], *end;
    REQUIRE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0 && strstr(info.dli_fname, "libhakmem") != NULL);
    snprintf(line, sizeof line, "objdump -d --no-show-raw-insn '%s' 2>/dev/null", info.dli_fname);
    FILE *list = popen(line, "r");
    REQUIRE(list != NULL);
    uintptr_t first = UINTPTR_MAX, last = 0;
    while (fgets(line, sizeof line, list) != NULL) {
        uintptr_t offset = strtoull(line, &end, 16);
        if (line[0] != ' ' || end == line || *end != ':' || instruction_count == INSTRUCTIONS_MAX)
            continue;
        instructions[instruction_count++] = (unsigned char *)info.dli_fbase + offset;
        first = offset < first ? offset : first;
        last = offset > last ? offset : last;
    }
    REQUIRE(pclose(list) == 0 && instruction_count > 5000);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = ((uintptr_t)info.dli_fbase + first) & ~(page - 1);
    size_t bytes = (uintptr_t)info.dli_fbase + last + page - start;
    REQUIRE(mprotect((void *)start, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
}

/* One in 32 is any of all; the others are the least drawn of eight that lie close to some that were met. */
static size_t instruction_draw(struct random_state *random)
{
    size_t best = random_below(random, instruction_count);
    bool is_any = met_count == 0 || random_below(random, 32) == 0;
    for (int i = 0; i < 8 && !is_any; i++) {
        size_t reach = random_below(random, 4) == 0 ? 300 : 10;
        size_t near = met[random_below(random, met_count)] + random_below(random, 2 * reach + 1);
        if (near < reach || near - reach >= instruction_count)
            continue;
        if (i == 0 || drawn[near - reach] < drawn[best])
            best = near - reach;
    }
    drawn[best]++;
    return best;
}

static void instruction_arm(size_t number)
{
    instead = *instructions[number];
    armed = instructions[number];
    *(volatile unsigned char *)armed = BREAKPOINT;
}

static void instruction_disarm(void)
{
    if (armed != NULL)
        *(volatile unsigned char *)armed = instead;
    armed = NULL;
}

static void instruction_was_met(size_t number)
{
    if (is_met[number])
        return;
    is_met[number] = true;
    met[met_count++] = (uint32_t)number;
}

/* --- calls of all kinds --- */

enum { SLOTS = 400 };

static void *blocks[SLOTS];

/* What calls are like for a while: for so many blocks, of so many bytes at most (0: of all sizes), or of just so many; and whether they rather
 * allocate, rather free, or both. */
static size_t slots = SLOTS, bytes_most;
static bool is_one_size;
static enum { BOTH, GROW, SHRINK } tendency;

static void calls_vary(struct random_state *random)
{
    static const size_t many[] = {1, 2, 8, 60, SLOTS, SLOTS}, most[] = {8, 40, 200, 1000, 3000, 40000, 400000, 0};
    static const size_t one[] = {32, 64, 500, 1000, 2000, 4000, 4000, 8000};
    slots = many[random_below(random, 6)];
    is_one_size = random_below(random, 2) == 0;
    bytes_most = (is_one_size ? one : most)[random_below(random, 8)];
}

static size_t bytes_draw(struct random_state *random)
{
    if (is_one_size)
        return bytes_most;
    return bytes_most ? sizeof(struct stamp) + random_below(random, bytes_most) : size_random(random);
}

/* The block is in no slot meanwhile. */
static void call(struct random_state *random)
{
    size_t k = random_below(random, slots), bytes = bytes_draw(random);
    uint64_t how = random_next(random) & 31;
    if (random_below(random, 64) == 0)
        tendency = random_below(random, 3);
    for (unsigned n = 0; n < 4 && tendency != BOTH && (blocks[k] == NULL) != (tendency == GROW); n++)
        k = random_below(random, slots);
    void *old = blocks[k], *made = NULL;
    if (old != NULL)
        block_verify(old, sizeof(struct stamp));
    blocks[k] = NULL;
    if (old != NULL && how == 0)
        made = realloc(old, bytes);
    else if (old != NULL)
        free(old);
    else if (how == 0)
        made = calloc(1, bytes);
    else if (how == 1)
        made = memalign((size_t)32 << bytes % 9, bytes);
    else
        made = malloc(bytes);
    if (made == NULL)
        return;
    block_stamp(made, bytes, k);
    blocks[k] = made;
}

static void free_all(void)
{
    for (size_t k = 0; k < SLOTS; k++)
        if (blocks[k] != NULL) {
            block_free(blocks[k]);
            blocks[k] = NULL;
        }
}

#endif
