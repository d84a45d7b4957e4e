/* launch.c - start one program from a tiny process and say what it cost.
 *
 * Usage: launch RESULT [-e NAME=VALUE]... [-v ADDRESS_SPACE_KB] [-m] PROGRAM ARGUMENTS
 *   RESULT  file that receives one JSON line: status, wall_ns (from just before exec to its end), user_us,
 *           sys_us, peak_kb, faults
 *   -v      limits the address space (ulimit -v)
 *   -m      a seccomp filter refuses madvise and process_madvise with EPERM
 * Why:      the kernel carries a process's peak memory over exec, so a program started from a large Python
 *           process would show Python's peak.
 * The program keeps this process's standard streams; `launch` itself allocates nothing after the fork.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void madvise_refuse(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) die("seccomp");
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: launch RESULT [-e NAME=VALUE]... [-v KB] [-m] PROGRAM ARGUMENTS\n");
        return 125;
    }
    const char *result = argv[1];
    uint64_t *start_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (start_ns == MAP_FAILED) die("mmap");
    int at = 2, refuse = 0;
    struct rlimit limit = { 0, 0 };
    for (; at < argc && argv[at][0] == '-'; at++) { /* before the fork: the child counts for the program */
        if (!strcmp(argv[at], "-e") && at + 1 < argc) putenv(argv[++at]);
        else if (!strcmp(argv[at], "-v") && at + 1 < argc)
            limit.rlim_cur = limit.rlim_max = strtoull(argv[++at], NULL, 10) << 10;
        else if (!strcmp(argv[at], "-m")) refuse = 1;
        else errno = EINVAL, die(argv[at]);
    }
    if (at == argc) errno = EINVAL, die("no program");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        if (limit.rlim_cur && setrlimit(RLIMIT_AS, &limit)) die("setrlimit");
        if (refuse) madvise_refuse();
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* who kills the launcher, having waited too long, ends the program */
        *start_ns = clock_ns();
        execvp(argv[at], argv + at);
        die(argv[at]);
    }
    struct rusage usage;
    int status;
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR) die("wait4");
    uint64_t wall_ns = clock_ns() - *start_ns;
    FILE *file = fopen(result, "w");
    if (!file) die(result);
    fprintf(file, "{\"status\":%d,\"wall_ns\":%llu,\"user_us\":%lld,\"sys_us\":%lld,\"peak_kb\":%ld,\"faults\":%ld}\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), (unsigned long long)wall_ns,
            usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec,
            usage.ru_stime.tv_sec * 1000000LL + usage.ru_stime.tv_usec, usage.ru_maxrss, usage.ru_minflt);
    return fclose(file) ? 125 : 0;
}
