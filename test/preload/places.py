#!/usr/bin/env python3
"""places.py - what the library writes and asks for in awkward places: files that cannot be written, links in the way, standard
error closed, an allocation before libc's start, sandboxes that kill or refuse, no byte to be written to a file, a program with half a malloc
family of its own.
"""
import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
library = os.path.join(os.path.abspath(parser.parse_args().build), "libhakmem.so")
failures = 0

ALLOCATES = r"""
#include <stdlib.h>
#include <string.h>
int main(void) { for (int i = 0; i < 10000; i++) { char *p = malloc(1000 + i); memset(p, 1, 1000); free(p); } return 0; }
"""
# Its own file becomes descriptor 2, or what was our copy of it.
CLOSES = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **word)
{
    if (count > 2) for (int i = 0; i < 1024; i++) close(i);
    if (count > 2) { open("/dev/null", O_RDWR); open("/dev/null", O_RDWR); }
    int data = open(word[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    free(malloc(100));
    static char *block[4096];
    struct timespec begin, now;
    unsigned dice = 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (count > 3) do {
        for (int i = 0; i < 100000; i++) {
            unsigned k = (dice = dice * 1103515245u + 12345u) >> 16 & 4095;
            free(block[k]);
            memset(block[k] = malloc(16 + (dice >> 8) % 600), 1, 16);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < atoi(word[3]));
    return write(data, "DATA", 4) == 4 ? data != 2 : 1;
}
"""
# Its standard error is gone with its parent; who reads that waits for the last who has it.
DAEMON = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
    free(malloc(100));
    pid_t child = fork();
    if (child != 0) return printf("%d\n", (int)child) < 0;
    setsid();
    for (int i = 0; i < 3; i++) dup2(open("/dev/null", O_RDWR), i);
    for (int i = 3; i < 10; i++) close(i);
    sleep(60);
    return 0;
}
"""
EARLY = r"""
#include <stdlib.h>
static void early(int c, char **v, char **e) { (void)c, (void)v, (void)e; free(malloc(10)); }
__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **, char **) = early;
int main(void) { return 0; }
"""
OWN_FAMILY = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
static char heap[1 << 22];
static size_t used;
void *malloc(size_t n) { n = (n + 31) & ~(size_t)15; char *p = heap + used; used += n; *(size_t *)p = n - 16; return p + 16; }
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n)
{
    void *q = malloc(n);
    if (p) memcpy(q, p, n < ((size_t *)p)[-2] ? n : ((size_t *)p)[-2]);
    return q;
}
int main(void) { char *p = malloc(10); strcpy(p, "hello"); p = reallocarray(p, 10, 10); return strcmp(p, "hello") != 0; }
"""
# Ends the process at what only a library that learns would ask: getrusage, prlimit64, files of /proc and of the control group.
SANDBOX = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
int main(void)
{
    static const int refused[] = { SYS_getrusage, SYS_prlimit64, SYS_openat };
    enum { COUNT = sizeof refused / sizeof *refused };
    struct sock_filter filter[COUNT + 3];
    int n = 0;
    free(malloc(10));
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], COUNT - i, 0);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = { (unsigned short)n, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return errno == EINVAL ? 77 : 1;
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    static char *block[20000];
    do {
        for (int i = 0; i < 20000; i++) block[i] = memset(malloc(16 + i % 500), 1, 16);
        for (int i = 0; i < 20000; i++) free(block[i]);
        free(memset(malloc(20 << 20), 1, 20 << 20));
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < 4);
    return 0;
}
"""
# As sshd's before a login: a forked child without /proc, files or signals' actions, that is killed at what it need not know.
CHILD_IN_SANDBOX = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void work(int ms)
{
    static char *block[20000];
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int i = 0; i < 20000; i++) block[i] = memset(malloc(16 + i % 500), 1, 16);
        for (int i = 0; i < 20000; i++) free(block[i]);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}
int main(void)
{
    static const int kills[] = { SYS_getrusage, SYS_prlimit64, SYS_prctl, SYS_rt_sigaction, SYS_unlinkat, SYS_sysinfo, SYS_clone, SYS_socket,
                                 SYS_sched_getaffinity, SYS_process_vm_readv, SYS_renameat2 };
    static const int refused[] = { SYS_openat, SYS_fstat, SYS_newfstatat };
    enum { KILLS = sizeof kills / sizeof *kills, REFUSED = sizeof refused / sizeof *refused, ALL = KILLS + REFUSED };
    struct sock_filter filter[ALL + 4];
    struct rlimit none = { 0, 0 };
    int n = 0, status = 0;
    work(50);
    pid_t child = fork();
    if (child) return waitpid(child, &status, 0) != child ? 2 : WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < KILLS; i++) filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kills[i], ALL - i + 1, 0);
    for (int i = 0; i < REFUSED; i++) filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], REFUSED - i, 0);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = { (unsigned short)n, filter };
    if (setrlimit(RLIMIT_FSIZE, &none) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
    if (prctl(PR_SET_SECCOMP, 2, &program)) return errno == EINVAL ? 77 : 4;
    work(1200);
    exit(0);
}
"""

# Then opens no file any more: what xz does with Landlock (since 5.6), and openssh with seccomp.
SHUT_IN = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **word)
{
    static char *block[4096];
    int for_ms = atoi(word[2]);
    unsigned dice = 1;
    struct timespec begin, now;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
    if (word[1][0] == 'l') {
        uint64_t files = 0x1fff; /* Landlock's first version: nothing is read, written, made or taken away */
        long rules = syscall(444 /* landlock_create_ruleset */, &files, sizeof files, 0);
        if (rules < 0 || syscall(446 /* landlock_restrict_self */, rules, 0)) return 77;
    } else {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
        if (prctl(PR_SET_SECCOMP, 2, &program)) return 77;
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int i = 0; i < 100000; i++) {
            unsigned k = (dice = dice * 1103515245u + 12345u) >> 16 & 4095;
            free(block[k]);
            memset(block[k] = malloc(16 + (dice >> 8) % 600), 1, 16);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < for_ms);
    return 0;
}
"""

# What is said of it goes to standard error, which takes no byte: the program's own signal is the one it dies by.
ENDS = r"""
#include <stdlib.h>
int main(int count, char **word)
{
    char *volatile block = malloc(100);
    if (word[1][0] == 's') *(volatile char *volatile)8 = 1;
    free(block);
    free(block);
    return 0;
}
"""


def no_file_bytes():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def expect(condition, what):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}")


def build(folder, name, source):
    path = os.path.join(folder, name)
    with open(path + ".c", "w", encoding="utf-8") as file:
        file.write(source)
    subprocess.run(["cc", "-O1", "-fno-builtin", "-w", "-o", path, path + ".c"], check=True)
    return path


def run(words, before=None, pass_error=True, **options):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    environment.update(LD_PRELOAD=library, **options)
    return subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE if pass_error else None, preexec_fn=before, text=True, timeout=60)


def run_behind_link(folder, words, name, option):
    """With a link where it will write first; the shell becomes the program, and so knows its number beforehand."""
    link = f'ln -s "$1" "$2.{name}"; shift 2; exec "$@"'.replace("PID", "$$")
    return run(["env", "-u", "LD_PRELOAD", "sh", "-c", link.replace('exec "$@"', 'LD_PRELOAD="$HAK_LIBRARY" exec "$@"'), "sh",
                os.path.join(folder, "victim"), os.path.join(folder, "out"), *words], HAK_LIBRARY=library, **option)


def main():
    with tempfile.TemporaryDirectory() as folder:
        allocates, closes = build(folder, "allocates", ALLOCATES), build(folder, "closes", CLOSES)
        daemon = build(folder, "daemon", DAEMON)
        for options in ({"HAKMEM_STATS": "1"}, {"HAKMEM_REPORT": os.path.join(folder, "of_daemon")}, {"HAKMEM_RECORD": os.path.join(folder, "of_daemon")}):
            started = time.monotonic()
            done = run([daemon], **options)
            os.kill(int(done.stdout), signal.SIGKILL)
            expect(time.monotonic() - started < 30, f"a daemon keeps its parent's standard error, {options}")
        for variable in ("HAKMEM_RECORD", "HAKMEM_REPORT"):
            for place, why in ((folder + "/none/x", "no such file or directory"), ("/dev/full", "no space left")):
                done = run([allocates], **{variable: place})
                expect(done.returncode == 0 and done.stderr == f"hakmem: {variable}: {place} cannot be written: {why}\n",
                       f"{variable}={place}: {done.returncode}, {done.stderr!r}")
            done = run([allocates], **{variable: os.path.join(folder, variable + ".%e-%p-%%")})
            found = [name for name in os.listdir(folder) if name.startswith(variable)]
            expect(done.returncode == 0 and len(found) == 1 and re.fullmatch(variable + r"\.allocates-\d+-%", found[0]),
                   f"{variable} with %e, %p and %%: {found}, {done.stderr!r}")
        victim, out = os.path.join(folder, "victim"), os.path.join(folder, "out")
        for variable, name in (("HAKMEM_REPORT", "PID.new"), ("HAKMEM_RECORD", "PID~")):
            with open(victim, "w", encoding="utf-8") as file:
                file.write("important")
            done = run_behind_link(folder, [allocates], name, {variable: out})
            with open(victim, encoding="utf-8") as file:
                expect(file.read() == "important", f"{variable}: a link in the way was followed")
            expect(done.returncode == 0 and os.path.isfile(out) and not os.path.islink(out) and os.path.getsize(out) > 100,
                   f"{variable}: {out} was not written: {done.stderr!r}")
            if os.path.lexists(out):
                os.unlink(out)
        data = os.path.join(folder, "data")
        for words, before, options in (([closes, data], lambda: os.close(2), {"HAKMEM_STATS": "1", "HAKMEM_RECORD": folder + "/none/x"}),
                                       ([closes, data, "all"], None, {"HAKMEM_STATS": "1", "HAKMEM_RECORD": folder + "/none/x"}),
                                       ([closes, data, "all", "2000"], None, {"HAKMEM_POLICY": folder + "/none/x", "HAKMEM_LEARN_HURRY": "100"})):
            done = run(words, before=before, pass_error=False, **options)
            with open(data, encoding="utf-8", errors="replace") as file:
                said = file.read()
            expect(done.returncode == 0 and said == "DATA", f"{words[1:]}: {done.returncode}, the program's file holds {said[:80]!r}")
        for variable in ("HAKMEM_RECORD", "HAKMEM_REPORT"): # nobody reads what is said
            read_end, write_end = os.pipe()
            os.close(read_end)
            done = run([allocates], before=lambda to=write_end: (os.dup2(to, 2), signal.signal(signal.SIGPIPE, signal.SIG_DFL)), pass_error=False,
                       **{variable: folder + "/none/x"})
            os.close(write_end)
            expect(done.returncode == 0, f"{variable}: the line that nobody reads ended the program: {done.returncode}")
        done = run([build(folder, "early", EARLY)], HAKMEM_STATS="1")
        expect(done.returncode == 0 and "statistics of process" in done.stderr, f"an early allocation: {done.stderr[:80]!r}")
        done = run([build(folder, "own_family", OWN_FAMILY)])
        expect(done.returncode == 0 and not done.stderr, f"a malloc family without reallocarray: {done.returncode}, {done.stderr!r}")
        done = run([build(folder, "sandbox", SANDBOX)], HAKMEM_HUGE_FROM_MB="0", HAKMEM_LEARN_HURRY="10")
        expect(done.returncode in (0, 77), f"a sandbox that kills: {done.returncode}, {done.stderr!r}")
        confined = build(folder, "confined", CHILD_IN_SANDBOX)
        recorded = {"HAKMEM_RECORD": "/dev/null", "HAKMEM_SAMPLE_BYTES": "1024", "HAKMEM_SAMPLE_MOST": "0"}
        learning = {"HAKMEM_POLICY": os.path.join(folder, "policy"), "HAKMEM_EVO_POLICY": "learn", "HAKMEM_LEARN_HURRY": "100"}
        said = os.path.join(folder, "said")
        for options in ({}, recorded, {"HAKMEM_RECORD": os.path.join(folder, "dump"), "HAKMEM_STATS": "1"}, {"HAKMEM_GUARD": "1"},
                        {"HAKMEM_GUARD": "1", "HAKMEM_SAMPLE_BYTES": "2048"}, learning, {**recorded, **learning, "HAKMEM_CRASH_REPORT": "1"}):
            for into_file in (False, True):
                with open(said, "wb") as file:
                    done = run([confined], before=(lambda to=file.fileno(): os.dup2(to, 2)) if into_file else None, HAKMEM_HUGE_FROM_MB="0", **options)
                expect(done.returncode in (0, 77), f"a child in a sandbox, {options}, into a file {into_file}: {done.returncode}, {done.stderr!r}")
        shut_in = build(folder, "shut_in", SHUT_IN)
        os.path.lexists(out) and os.unlink(out)
        for way, why in (("landlock", "permission denied"), ("seccomp", "not permitted")):
            for options, ms in (({"HAKMEM_REPORT": out}, 0), ({"HAKMEM_RECORD": out}, 0), ({"HAKMEM_POLICY": out, "HAKMEM_LEARN_HURRY": "100"}, 2000)):
                done = run([shut_in, way, str(ms)], **options)
                line = f"hakmem: {list(options)[0]}: {out} cannot be written: {why}; the process is in a sandbox that refuses /dev/null, too\n"
                expect(done.returncode == 77 or done.returncode == 0 and done.stderr == line and not os.path.lexists(out),
                       f"a program that shuts itself in, {way}, {options}: {done.returncode}, {done.stderr!r}")
        for options in ({"HAKMEM_RECORD": out}, {"HAKMEM_REPORT": out}, {"HAKMEM_STATS": "1"}, learning):
            with open(said, "wb") as file:
                done = run([allocates], before=lambda to=file.fileno(): (os.dup2(to, 2), no_file_bytes()), **options)
            expect(done.returncode == 0, f"no byte may be written to a file, {options}: {done.returncode}")
            done = run([allocates], before=no_file_bytes, **options)
            wants_line = out in options.values()
            expect(done.returncode == 0 and (not wants_line or done.stderr.endswith("cannot be written: file too large\n")),
                   f"the same, standard error being none: {done.returncode}, {done.stderr!r}")
        ends = build(folder, "ends", ENDS)
        for word, dies_by in (("twice", signal.SIGABRT), ("segment", signal.SIGSEGV)):
            for options in ({}, {"HAKMEM_CRASH_REPORT": "1"}, {"HAKMEM_GUARD": "1", "HAKMEM_SAMPLE_BYTES": "64"}):
                with open(said, "wb") as file:
                    done = run([ends, word], before=lambda to=file.fileno(): (os.dup2(to, 2), no_file_bytes()), **options)
                expect(done.returncode == -dies_by, f"no byte may be written to standard error, {word}, {options}: {done.returncode}")
        dumps = os.path.join(folder, "dumps")
        os.mkdir(dumps)
        started = time.monotonic()
        done = run([allocates], before=lambda: os.mkfifo(os.path.join(dumps, f"allocates.{os.getpid()}.exit.hakdump")), HAKMEM_RECORD=dumps + "/")
        found = [os.path.join(dumps, name) for name in os.listdir(dumps)]
        expect(done.returncode == 0 and time.monotonic() - started < 30 and len(found) == 1 and os.path.isfile(found[0]) and os.path.getsize(found[0]) > 100,
               f"a pipe under the dump's name in a folder: {done.returncode}, {found}, {done.stderr!r}")
        if shutil.which("gdb"): # which places the string by the malloc that it finds, if it knows its type
            done = run(["env", "-u", "LD_PRELOAD", "gdb", "-nx", "-q", "-batch", "-ex", f"set environment LD_PRELOAD={library}", "-ex", "set environment DEBUGINFOD_URLS=",
                        "-ex", "break main", "-ex", "run", "-ex", 'print (int)strlen("abc")', "-ex", "print (long)malloc(3) != 0", allocates])
            expect("$1 = 3\n$2 = 1\n" in done.stdout, f"gdb: {done.stdout[-300:]!r}, {done.stderr!r}")
    if failures:
        sys.exit(1)
    print("files, links, descriptors, early calls, own families, sandboxes, limits of files: as they should")


main()
