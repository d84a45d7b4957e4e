/* realloc_growth.c - strings and vectors that grow by realloc.
 *
 * Arguments: strings 20000, MB of the vector 256, seed 12345.
 * Each string grows by 1 to 64 bytes to 2 KiB, among 64 that grow together; the vector grows by half from
 * 4 KiB to its full size, eight times. Contents are verified after every growth (first and last byte before it)
 * and whole at the end.
 */
#include "work.h"

enum { TOGETHER = 64, STRING_BYTES = 2048, VECTOR_ROUNDS = 8 };

static void *grown(void *block, size_t before, size_t after, unsigned char tag) {
    unsigned char *larger = realloc(block, after);
    if (!larger) work_die(1, "no memory for %zu bytes", after);
    if (before) work_verify(larger, before, tag);
    memset(larger + before, tag, after - before);
    return larger;
}

int main(int argc, char **argv) {
    uint64_t string_count = work_arg(argc, argv, 1, "strings", 20000, 0, 1u << 30);
    uint64_t vector_bytes = work_arg(argc, argv, 2, "mb", 256, 1, 1u << 16) * 1000000u;
    uint64_t seed = work_arg(argc, argv, 3, "seed", 12345, 0, UINT64_MAX), random = seed, op_count = 0;
    work_args_end(argc, argv, 3);
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    unsigned char *string[TOGETHER] = { 0 };
    size_t length[TOGETHER] = { 0 };
    for (uint64_t done = 0; done < string_count; op_count++) {
        uint64_t i = work_below(&random, TOGETHER);
        size_t after = length[i] + 1 + work_below(&random, 64);
        string[i] = grown(string[i], length[i], after, (unsigned char)i);
        length[i] = after;
        if (after < STRING_BYTES) continue;
        for (size_t at = 0; at < after; at++)
            if (string[i][at] != (unsigned char)i) work_die(1, "a string has changed at byte %zu", at);
        free(string[i]);
        string[i] = NULL;
        length[i] = 0;
        done++;
    }
    for (uint64_t i = 0; i < TOGETHER; i++) free(string[i]);
    uint64_t string_ns = work_wall_ns() - wall_ns, vector_ns = work_wall_ns();
    for (unsigned round = 0; round < VECTOR_ROUNDS; round++) {
        unsigned char *vector = NULL;
        size_t bytes = 0;
        for (size_t after = 4096; bytes < vector_bytes; after += after / 2, op_count++) {
            if (after > vector_bytes) after = vector_bytes;
            vector = grown(vector, bytes, after, (unsigned char)(round + 1));
            bytes = after;
        }
        for (size_t at = 0; at < bytes; at += 509)
            if (vector[at] != round + 1) work_die(1, "the vector has changed at byte %zu", at);
        free(vector);
    }
    vector_ns = work_wall_ns() - vector_ns;
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("realloc_growth", argc, argv);
    work_number("seed", seed);
    work_number("ops", op_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(random + op_count);
    work_number("string_ns", string_ns);
    work_number("vector_ns", vector_ns);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
