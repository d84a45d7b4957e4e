/* fork_cow.c - after a fork the child frees a random half of many blocks: how many pages are copied?
 *
 * Arguments: bytes of a block 64, MB in all 512, seed 12345.
 * A page is copied when the child writes to it. Counted twice: the child's minor faults while it frees, and the
 * growth of its Private_Dirty. The blocks' addresses are shuffled before the fork, by the parent.
 */
#include "work.h"
#include <sys/wait.h>

static uint64_t dirty_kb(void) { return work_proc_field("/proc/self/smaps_rollup", "Private_Dirty:"); }

int main(int argc, char **argv) {
    size_t bytes = work_arg(argc, argv, 1, "bytes", 64, 1, 1u << 20);
    uint64_t total_bytes = work_arg(argc, argv, 2, "mb", 512, 1, 1u << 16) << 20;
    uint64_t seed = work_arg(argc, argv, 3, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 3);
    uint64_t count = total_bytes / bytes;
    void **block = work_table(count * sizeof *block);
    for (uint64_t i = 0; i < count; i++) block[i] = work_alloc(bytes, (unsigned char)bytes);
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t other = work_below(&random, i + 1);
        void *one = block[i];
        block[i] = block[other];
        block[other] = one;
    }
    uint64_t *result = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED) work_die(1, "no shared page");
    pid_t child = fork();
    if (child < 0) work_die(1, "no fork");
    if (!child) {
        uint64_t dirty = dirty_kb(), faults = work_faults(), wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
        for (uint64_t i = 0; i < count / 2; i++) free(block[i]);
        result[0] = work_faults() - faults;
        result[2] = work_wall_ns() - wall_ns;
        result[4] = work_cpu_ns() - cpu_ns;
        result[1] = dirty_kb() - dirty;
        for (uint64_t i = count / 2; i < count; i++) work_verify(block[i], bytes, (unsigned char)bytes);
        result[3] = 1;
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status || !result[3]) work_die(1, "the child ended with status %d", status);
    work_begin("fork_cow", argc, argv);
    work_number("seed", seed);
    work_number("ops", count / 2);
    work_number("wall_ns", result[2]);
    work_number("cpu_ns", result[4]);
    work_check(random);
    work_number("child_faults", result[0]);
    work_number("pages_copied", result[1] / 4);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
