/* ping.c - how long a redis server keeps one client waiting: a value is set, again and again, and the answer is timed.
 *
 *     ping PORT SECONDS SERVER_PID BYTES KEYS
 *
 * Prints one line: count, median, 99.9th percentile, the longest, the longest less what the kernel let the server and us wait
 * for a processor meanwhile (schedstat's run delay), and how many were longer than 1 ms in either sense; times in microseconds.
 * On a machine that is not idle only the last two say something about the server.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 1 << 20 }; /* of 0.1 us */
static uint32_t bucket[BUCKETS];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds that the process has waited for a processor. */
static uint64_t delay_ns(const char *pid)
{
    char path[64], text[128] = "";
    snprintf(path, sizeof path, "/proc/%s/schedstat", pid);
    FILE *file = fopen(path, "r");
    unsigned long long ran = 0, waited = 0;
    if (file) {
        if (fgets(text, sizeof text, file)) sscanf(text, "%llu %llu", &ran, &waited);
        fclose(file);
    }
    return waited;
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
    uint64_t waited = delay_ns(words[3]) + delay_ns("self"), random = 88172645463325252u;
    for (uint64_t start; (start = now_ns()) < end; sent++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        char key[32];
        int key_bytes = snprintf(key, sizeof key, "key:%d", (int)(random % (unsigned)keys));
        int length = bytes - (int)((random >> 32) % (unsigned)(bytes / 2)); /* sizes differ, or redis writes over the old value */
        int size = snprintf(request, (size_t)bytes + 256, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%.*s\r\n", key_bytes, key, length, length, value);
        start = now_ns();
        all_of(fd, request, (size_t)size);
        if (read(fd, answer, sizeof answer) <= 0 || answer[0] != '+') return 1;
        uint64_t took = now_ns() - start;
        bucket[took / 100 < BUCKETS ? took / 100 : BUCKETS - 1]++;
        if (took > longest) longest = took;
        if (took < 300000) continue;
        uint64_t waited_now = delay_ns(words[3]) + delay_ns("self"), own = waited_now - waited < took ? took - (waited_now - waited) : 0;
        waited = waited_now;
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
