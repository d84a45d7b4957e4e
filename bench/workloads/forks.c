/* forks.c - a process with a heap forks again and again; each child works a little and ends.
 *
 * Arguments: forks 200, MB of the heap 64, blocks a child 1000, seed 12345.
 * What servers do that fork for each request, or to save their memory. The heap is of blocks of 16 to 1,024 bytes.
 * A child frees and allocates that many blocks of it, checks what it was given, and ends at once. An operation is
 * one fork to the child's end; cpu_ns is the children's and ours, children_faults the children's minor faults.
 */
#include "work.h"
#include <sys/wait.h>

struct held { unsigned char *block; uint32_t bytes; };

static void held_make(struct held *one, uint64_t *random) {
    one->bytes = 16 + (uint32_t)work_below(random, 1009);
    one->block = work_alloc(one->bytes, (unsigned char)one->bytes);
}
static void child_run(struct held *held, uint64_t count, uint64_t block_count, uint64_t random) {
    for (uint64_t i = 0; i < block_count; i++) {
        struct held *one = &held[work_below(&random, count)];
        work_free(one->block, one->bytes, (unsigned char)one->bytes);
        held_make(one, &random);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    uint64_t fork_count = work_arg(argc, argv, 1, "forks", 200, 1, 1u << 30);
    uint64_t heap_bytes = work_arg(argc, argv, 2, "mb", 64, 1, 1u << 16) * 1000000u;
    uint64_t block_count = work_arg(argc, argv, 3, "blocks", 1000, 0, 1u << 30);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 4);
    uint64_t count = heap_bytes / 520 + 1;
    struct held *held = work_table(count * sizeof *held);
    for (uint64_t i = 0; i < count; i++) {
        held_make(&held[i], &random);
        memset(held[i].block, (unsigned char)held[i].bytes, held[i].bytes);
    }
    struct work_span span = work_start();
    for (uint64_t i = 0; i < fork_count; i++) {
        pid_t child = fork();
        if (child < 0) work_die(1, "no fork: %s", strerror(errno));
        if (!child) child_run(held, count, block_count, seed + i);
        int status;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) { }
        if (status) work_die(1, "a child ended with status %d", status);
    }
    work_stop(&span);
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    span.cpu_ns += work_time_ns(children.ru_utime) + work_time_ns(children.ru_stime);
    for (uint64_t i = 0; i < count; i++) work_verify_whole(held[i].block, held[i].bytes, (unsigned char)held[i].bytes);
    work_begin("forks", argc, argv);
    work_number("seed", seed);
    work_measured(fork_count, span);
    work_check(random);
    work_number("children_faults", (uint64_t)children.ru_minflt);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
