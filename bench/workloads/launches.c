/* launches.c - a small program is started and ends, many times.
 *
 * Arguments: starts 200, program true.
 * The program is found by PATH, gets no arguments and must exit 0; it inherits this process's environment, and with
 * it the allocator that is preloaded here. One runs at a time. An operation is one start to its end; cpu_ns is the
 * children's and ours, children_peak_kb the largest peak of one, children_faults the faults of all together.
 */
#include "work.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;


int main(int argc, char **argv) {
    uint64_t start_count = work_arg(argc, argv, 1, "starts", 200, 1, 1u << 30);
    char *program = argc > 2 ? argv[2] : "true";
    work_args_end(argc, argv, 2);
    char *const arguments[] = { program, NULL };
    struct work_span span = work_start();
    for (uint64_t i = 0; i < start_count; i++) {
        pid_t child;
        int status, error = posix_spawnp(&child, program, NULL, NULL, arguments, environ);
        if (error) work_die(2, "%s: program=%s cannot be started: %s", argv[0], program, strerror(error));
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) { }
        if (status) work_die(1, "%s ended with status %d", program, status);
    }
    work_stop(&span);
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    span.cpu_ns += work_time_ns(children.ru_utime) + work_time_ns(children.ru_stime);
    work_begin("launches", argc, argv);
    work_measured(start_count, span);
    work_number("children_peak_kb", (uint64_t)children.ru_maxrss);
    work_number("children_faults", (uint64_t)children.ru_minflt);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
