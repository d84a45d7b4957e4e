/* bench_allocators.c - four scenarios by name, and the proof of the allocator they ran on.
 *
 * Usage: bench_allocators [--allocator NAME] [--scenario json|mir|vm|mixed] [--iterations N]
 *   NAME   any, or the allocator that must be the one: glibc, hakmem, hakmem-baseline, hakmem-evolving, mimalloc,
 *          jemalloc, tcmalloc, snmalloc, rpmalloc, tbbmalloc (mimalloc3 and the like name one file more closely).
 *          If another's malloc is in the process, one line says so, and the exit status is 3: nothing was measured.
 *   json   a document of about 64 KiB: an input buffer, a list of tokens that grows, strings, an output that grows
 *   mir    four blocks of about 256 KiB, as a compiler takes them for one function, half of each written,
 *          freed last first
 *   vm     a buffer of 2 MiB, each page written
 *   mixed  documents, a compiler's function after every fourth, a buffer after every sixteenth
 * The scenarios know nothing of the allocator; the proof asks which file of /proc/self/maps `malloc` lies in.
 * hakmem-evolving is HAKMEM with learning switched on (option evo_policy), hakmem-baseline HAKMEM without.
 */
#include "work.h"

/* HAKMEM's, where HAKMEM is: whether it learns can only be asked of itself. */
extern size_t hak_option_get(const char *name, char *text, size_t bytes) __attribute__((weak));

enum { STRINGS = 48 };
static uint64_t random_state, digest;

static void *block_written(size_t bytes, size_t written, unsigned char tag) {
    unsigned char *block = work_alloc(bytes, tag);
    memset(block, tag, written);
    return block;
}

static void json_run(unsigned char tag) {
    size_t bytes = 57344 + (size_t)work_below(&random_state, 16384), token_room = 64, token_count = 0;
    unsigned char *input = block_written(bytes, bytes, tag);
    uint64_t *token = malloc(token_room * sizeof *token);
    char *string[STRINGS];
    size_t string_bytes[STRINGS], string_count = 0;
    for (size_t at = 0; at + 48 < bytes; at += 16 + (size_t)work_below(&random_state, 33)) {
        if (token_count == token_room) token = realloc(token, (token_room *= 2) * sizeof *token);
        if (!token) work_die(1, "no memory for tokens");
        token[token_count++] = at + input[at];
        if (token_count % 32 == 0 && string_count < STRINGS) {
            string_bytes[string_count] = 8 + (size_t)work_below(&random_state, 120);
            string[string_count] = block_written(string_bytes[string_count], string_bytes[string_count], tag);
            string_count++;
        }
    }
    size_t output_room = 4096, output_bytes = 0;
    unsigned char *output = malloc(output_room);
    for (size_t i = 0; i < token_count; i++) {
        if (output_bytes + 32 > output_room) output = realloc(output, output_room *= 2);
        if (!output) work_die(1, "no memory for the output");
        memset(output + output_bytes, (unsigned char)token[i], 32);
        output_bytes += 32;
    }
    for (size_t i = 0; i < token_count; i += 61)
        if (output[i * 32] != (unsigned char)token[i]) work_die(1, "the output has changed");
    digest += token_count + output[output_bytes / 2];
    for (size_t i = 0; i < string_count; i++) work_free(string[i], string_bytes[i], tag);
    free(token);
    work_free(input, bytes, tag);
    free(output);
}

static void mir_run(unsigned char tag) {
    unsigned char *block[4];
    size_t bytes[4];
    for (unsigned i = 0; i < 4; i++) {
        bytes[i] = 229376 + (size_t)work_below(&random_state, 65536);
        block[i] = block_written(bytes[i], bytes[i] / 2, tag);
        digest += bytes[i];
    }
    for (unsigned i = 4; i-- > 0;) work_free(block[i], bytes[i], tag);
}

static void vm_run(unsigned char tag) {
    size_t bytes = 2u << 20;
    volatile unsigned char *block = work_alloc(bytes, tag);
    for (size_t at = 0; at < bytes; at += 4096) block[at] = tag;
    digest += block[bytes / 2];
    work_free((void *)block, bytes, tag);
}

/* --- the proof --------------------------------------------------------------------------------------- */

/* The file that an address lies in; without a name where there is none. */
struct place { uintptr_t address; char object[256]; };
static bool place_see(char *line, void *context) {
    struct place *place = context;
    char *after;
    uintptr_t from = (uintptr_t)strtoull(line, &after, 16), to = (uintptr_t)strtoull(after + 1, NULL, 16);
    if (place->address < from || place->address >= to) return true;
    char *path = strrchr(line, '/');
    snprintf(place->object, sizeof place->object, "%s", path ? path + 1 : "");
    return false;
}

static const char *allocator_prove(const char *program, const char *name) {
    static const char *const known[] = { "any",      "glibc",    "hakmem",   "hakmem-baseline", "hakmem-evolving",
                                         "mimalloc", "jemalloc", "tcmalloc", "snmalloc",        "rpmalloc",
                                         "tbbmalloc" };
    bool is_known = false;
    char list[256] = "";
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i]);
        is_known |= !strncmp(name, known[i], length) && strspn(name + length, "0123456789.") == strlen(name + length);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", known[i]);
    }
    if (!is_known) work_die(2, "%s: --allocator %s is none of %s", program, name, list);
    void *(*volatile here)(size_t) = malloc;
    static struct place place;
    place.address = (uintptr_t)here;
    work_maps_each(place_see, &place);
    const char *object = place.object;
    const char *wanted = strncmp(name, "hakmem-", 7) ? name : "hakmem";
    bool is_there = !strcmp(name, "any")     ? true
                    : !strcmp(name, "glibc") ? !strncmp(object, "libc.so", 7) || !strncmp(object, "libc-2", 6)
                                             : strstr(object, wanted) != NULL;
    if (!is_there) work_die(3, "%s: malloc is not %s's, it lies in %s", program, name, *object ? object : "no file");
    if (!strncmp(name, "hakmem-", 7)) {
        char policy[32] = "";
        bool learns = hak_option_get && hak_option_get("evo_policy", policy, sizeof policy) && strcmp(policy, "off");
        if (learns != !strcmp(name, "hakmem-evolving"))
            work_die(3, "%s: this is HAKMEM, but it %s (evo_policy %s)", program, learns ? "learns" : "does not learn",
                     *policy ? policy : "is not there");
    }
    return object;
}

int main(int argc, char **argv) {
    static const char *const scenario_word[] = { "json", "mir", "vm", "mixed" };
    const char *allocator = "any";
    unsigned scenario = 3;
    uint64_t iteration_count = 1000;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) work_die(2, "%s: %s has no value", argv[0], argv[i]);
        if (!strcmp(argv[i], "--allocator"))
            allocator = argv[i + 1];
        else if (!strcmp(argv[i], "--scenario"))
            scenario = work_choice(argc, argv, i + 1, "--scenario", scenario_word, 4);
        else if (!strcmp(argv[i], "--iterations"))
            iteration_count = work_arg(argc, argv, i + 1, "--iterations", 0, 1, UINT32_MAX);
        else
            work_die(2, "%s: unknown %s; known are --allocator, --scenario and --iterations", argv[0], argv[i]);
    }
    const char *object = allocator_prove(argv[0], allocator);
    random_state = 12345;
    struct work_span span = work_start();
    for (uint64_t i = 0; i < iteration_count; i++) {
        unsigned char tag = (unsigned char)i;
        if (scenario == 0 || scenario == 3) json_run(tag);
        if (scenario == 1 || (scenario == 3 && i % 4 == 3)) mir_run(tag);
        if (scenario == 2 || (scenario == 3 && i % 16 == 15)) vm_run(tag);
    }
    work_stop(&span);
    work_begin("bench_allocators", argc, argv);
    work_put(",\"allocator\":\"%s\",\"scenario\":\"%s\"", object, scenario_word[scenario]);
    work_number("seed", 12345);
    work_measured(iteration_count, span);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
