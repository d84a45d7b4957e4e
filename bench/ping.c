/* ping.c - how long a redis server keeps one client waiting: a value is set, again and again, and the answer is timed.
 *
 *     ping PORT SECONDS SERVER_PID BYTES KEYS
 *
 * Prints one line: count, median, 99.9th percentile, the longest, the longest of the server's own, and how many were longer than
 * 1 ms in either sense; times in microseconds. On a machine that is not idle only the server's own say something about it.
 *
 * A request goes out when the server waits for one in epoll, and is timed from the moment that it could have gone. Its own time is
 * less what the kernel let the server and us wait for a processor meanwhile (schedstat's run delay). On a guest the host may also
 * take the processor away, or wake it late; no kernel shows that to a program in less than ticks. But where server and client each
 * came to a processor once between request and answer, neither was preempted nor blocked: then the own time is what both ran
 * (schedstat; it leaves out stolen time with CONFIG_PARAVIRT_TIME_ACCOUNTING), and the rest is the host's. Who came more often was
 * perhaps blocked, by a lock or a signal, so that nothing more is taken off. What a handler or a fault of the recording does, or a
 * lock that it holds, is own time either way.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 1 << 20 }; /* of 0.1 us */
#ifdef SYS_epoll_wait
enum { IN_EPOLL = SYS_epoll_wait };
#else
enum { IN_EPOLL = SYS_epoll_pwait };
#endif
static uint32_t bucket[BUCKETS];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What a process has had of its processors: nanoseconds it ran and waited to run, and how often it came to one. */
typedef struct {
    unsigned long long ran, waited, times;
} processor_t;

static int open_of(const char *pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static processor_t processor_of(int fd)
{
    char text[128] = "";
    processor_t had = { 0 };
    if (pread(fd, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%llu %llu %llu", &had.ran, &had.waited, &had.times) != 3) exit(1);
    return had;
}

static int is_in_epoll(int syscall_fd)
{
    char text[256] = "";
    if (pread(syscall_fd, text, sizeof text - 1, 0) <= 0) exit(1);
    long number = text[0] >= '0' && text[0] <= '9' ? atol(text) : -1; /* else "running", or blocked in a fault: -1 */
    return number == SYS_epoll_pwait || number == IN_EPOLL;
}

/* Waits until the server waits in epoll: what it does after an answer is over then and counted, and a request wakes it. */
static processor_t until_in_epoll(int syscall_fd, int schedstat_fd)
{
    for (processor_t before = processor_of(schedstat_fd), now;; before = now) {
        int waits = is_in_epoll(syscall_fd);
        now = processor_of(schedstat_fd);
        if (waits && now.times == before.times) return now; /* it has not come to a processor since */
        sched_yield(); /* ours may be the processor that it needs */
    }
}

/* For a processor; but where we wait for ours while the server runs, it may be the server that has it. */
static uint64_t waited_ns(const processor_t *server, const processor_t *server_now, const processor_t *us, const processor_t *us_now)
{
    uint64_t ran = server_now->ran - server->ran, ours = us_now->waited - us->waited;
    return server_now->waited - server->waited + (ours > ran ? ours - ran : 0);
}

/* How much of an answer that took so long was the server's or our own. */
static uint64_t own_ns(uint64_t took, const processor_t *server, const processor_t *server_now, const processor_t *us, const processor_t *us_now)
{
    uint64_t waited = waited_ns(server, server_now, us, us_now);
    uint64_t ran = server_now->ran - server->ran + us_now->ran - us->ran, own = waited < took ? took - waited : 0;
    return server_now->times - server->times <= 1 && us_now->times - us->times <= 1 && ran < own ? ran : own;
}

static void all_of(int fd, const char *bytes, size_t count)
{
    for (ssize_t done; count; bytes += done, count -= (size_t)done)
        if ((done = write(fd, bytes, count)) <= 0) exit(1);
}

static double percentile(uint64_t count, double part)
{
    uint64_t below = 0;
    for (int i = 0; i < BUCKETS; i++)
        if ((below += bucket[i]) >= part * (double)count) return i / 10.0;
    return BUCKETS / 10.0;
}

int main(int count, char **words)
{
    if (count != 6) return 2;
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, bytes = atoi(words[4]), keys = atoi(words[5]);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) return 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char *value = malloc((size_t)bytes + 1), *request = malloc((size_t)bytes + 256), answer[64];
    memset(value, 'v', (size_t)bytes);
    value[bytes] = 0;
    uint64_t end = now_ns() + strtoull(words[2], NULL, 10) * 1000000000u, sent = 0, longest = 0, longest_own = 0, slow = 0, slow_own = 0;
    int in_call = open_of(words[3], "syscall"), server_schedstat = open_of(words[3], "schedstat"), our_schedstat = open_of("self", "schedstat");
    uint64_t random = 88172645463325252u;
    while (now_ns() < end) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        char key[32];
        int key_bytes = snprintf(key, sizeof key, "key:%d", (int)(random % (unsigned)keys));
        int length = bytes - (int)((random >> 32) % (unsigned)(bytes / 2)); /* sizes differ, or redis writes over the old value */
        int size = snprintf(request, (size_t)bytes + 256, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%.*s\r\n", key_bytes, key, length, length, value);
        processor_t server_before = processor_of(server_schedstat), us_before = processor_of(our_schedstat);
        uint64_t start = now_ns();
        processor_t server = until_in_epoll(in_call, server_schedstat), us = processor_of(our_schedstat);
        uint64_t sent_at = now_ns();
        all_of(fd, request, (size_t)size);
        if (read(fd, answer, sizeof answer) <= 0 || answer[0] != '+') return 1;
        uint64_t answered_at = now_ns(), took = answered_at - start;
        bucket[took / 100 < BUCKETS ? took / 100 : BUCKETS - 1]++;
        sent++;
        if (took > longest) longest = took;
        if (took < 300000) continue;
        processor_t us_now = processor_of(our_schedstat), server_now = until_in_epoll(in_call, server_schedstat);
        uint64_t before = sent_at - start, waited = waited_ns(&server_before, &server, &us_before, &us);
        uint64_t own = (waited < before ? before - waited : 0) + own_ns(answered_at - sent_at, &server, &server_now, &us, &us_now);
        slow += took > 1000000;
        slow_own += own > 1000000;
        if (own > longest_own) longest_own = own;
    }
    printf("{\"requests\": %llu, \"median_us\": %.1f, \"p999_us\": %.1f, \"longest_us\": %.0f, \"longest_own_us\": %.0f, "
           "\"over_1ms\": %llu, \"over_1ms_own\": %llu}\n",
           (unsigned long long)sent, percentile(sent, 0.5), percentile(sent, 0.999), (double)longest / 1000,
           (double)longest_own / 1000, (unsigned long long)slow, (unsigned long long)slow_own);
    return 0;
}
