/* group_limit.c - the control group's limit (made up here, in a mount of its own) makes free memory go back as a user's soft limit does; where
 * there is none, where it is far, and where the user says so, nothing goes.
 *
 * ctest: native
 */
#include "expect.h"

#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MIB ((size_t)1 << 20)
enum { HOLES = 2, WALLS = 2, MORE = 10 };

static bool put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool is_done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_done;
}

/* A tree of our own over the system's: nobody else sees it. */
static bool tree_make(void)
{
    char text[64], list[4096];
    unsigned uid = getuid(), gid = getgid();
    int fd = open("/proc/self/cgroup", O_RDONLY);
    ssize_t got = fd >= 0 ? read(fd, list, sizeof list - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return false;
    list[got] = 0;
    if (strstr(list, ":/..")) /* of such a group the mount is another's */
        return false;
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        put("/proc/self/setgroups", "deny");
        snprintf(text, sizeof text, "0 %u 1", uid);
        put("/proc/self/uid_map", text);
        snprintf(text, sizeof text, "0 %u 1", gid);
        put("/proc/self/gid_map", text);
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0;
}

static bool is_version_1(void)
{
    char list[4096];
    int fd = open("/proc/self/cgroup", O_RDONLY);
    ssize_t got = read(fd, list, sizeof list - 1);
    close(fd);
    list[got > 0 ? got : 0] = 0;
    return strstr(list, ":memory:") != NULL;
}

static void limit_set(const char *text)
{
    if (!is_version_1()) {
        REQUIRE(put("/sys/fs/cgroup/memory.max", text));
        return;
    }
    REQUIRE(mkdir("/sys/fs/cgroup/memory", 0700) == 0 || errno == EEXIST);
    REQUIRE(put("/sys/fs/cgroup/memory/memory.limit_in_bytes", strcmp(text, "max") == 0 ? "9223372036854771712\n" : text));
}

static struct hak_stats stats_now(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats;
}

static uint64_t soft_limit(void)
{
    char text[32];
    hak_option_get("limit_soft_mb", text, sizeof text);
    return strtoull(text, NULL, 10);
}

/* Holes of 5 MiB in all are free, which is less than what may stay; then it grows to 80 MiB, with no hole large enough. */
static void grow(void)
{
    char *hole[HOLES], *wall[WALLS], *more[MORE];
    REQUIRE(hak_option_set("purge_delay_ms", "600000") == 0); /* or it goes for being old */
    for (int i = 0; i < HOLES; i++) {
        hole[i] = (char *)malloc(2 * MIB + MIB / 2);
        wall[i] = (char *)malloc(10 * MIB);
        REQUIRE(hole[i] != NULL && wall[i] != NULL);
        memset(hole[i], 1, 2 * MIB + MIB / 2);
    }
    for (int i = 0; i < HOLES; i++)
        free(hole[i]);
    EXPECT(stats_now().free_bytes >= 5 * MIB);
    errno = 4711;
    for (int i = 0; i < MORE; i++) {
        more[i] = (char *)malloc(6 * MIB);
        REQUIRE(more[i] != NULL);
    }
    EXPECT(errno == 4711);
}

/* In a process of its own each, which reads the limit anew. */
static void in_a_child(void (*sentence)(void), const char *limit)
{
    limit_set(limit);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        sentence();
        _exit(EXPECT_RESULT());
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static void near_the_limit_what_is_free_goes(void)
{
    EXPECT(soft_limit() == 0); /* nothing is read before it grew */
    grow();
    EXPECT_SAY(soft_limit() == 82, "%llu", (unsigned long long)soft_limit());
    struct hak_stats stats = stats_now();
    EXPECT_SAY(stats.free_bytes + stats.taken_bytes <= 83 * MIB, "%llu free, %llu taken", (unsigned long long)stats.free_bytes,
               (unsigned long long)stats.taken_bytes);
    EXPECT(stats.free_bytes <= 3 * MIB);
    char json[65536];
    REQUIRE(hak_stats_json(json, sizeof json) < sizeof json);
    EXPECT(strstr(json, "\"limit_soft_bytes\": 85983232,") != NULL && strstr(json, "\"group_memory_bytes\": 96468992,") != NULL);
}

static void far_from_it_nothing_goes(void)
{
    grow();
    EXPECT(soft_limit() == 921);
    EXPECT(stats_now().free_bytes >= 5 * MIB);
}

static void without_a_limit_nothing_goes(void)
{
    grow();
    EXPECT(soft_limit() == 0);
    EXPECT(stats_now().free_bytes >= 5 * MIB);
}

static void with_the_option_off_nothing_goes(void)
{
    REQUIRE(hak_option_set("cgroup", "0") == 0);
    without_a_limit_nothing_goes();
}

/* As a sandbox does that lets nothing be opened any more. */
static void where_nothing_can_be_opened_nothing_goes(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, program};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0)
        without_a_limit_nothing_goes();
}

static void what_the_user_set_comes_first(void)
{
    REQUIRE(hak_option_set("limit_soft_mb", "300") == 0);
    grow();
    EXPECT(soft_limit() == 300);
    EXPECT(stats_now().free_bytes >= 5 * MIB);
}

/* Its parent knows another limit, and holds 80 MiB; it grows no further. */
static void a_child_reads_it_anew_by_the_clock(void)
{
    EXPECT(soft_limit() == 82);
    for (int i = 0; i < 500 && soft_limit() == 82; i++) {
        struct timespec nap = {0, 10000000};
        nanosleep(&nap, NULL);
        for (int j = 0; j < 256; j++) /* visits, and no growth */
            free(malloc(1000));
    }
    EXPECT_SAY(soft_limit() == 921, "%llu", (unsigned long long)soft_limit());
}

int main(void)
{
    if (getenv("HAKMEM_CGROUP") || getenv("HAKMEM_LIMIT_SOFT_MB") || !tree_make()) {
        printf("skipped: no mount of its own for /sys/fs/cgroup\n");
        return EXPECT_SKIPPED;
    }
    in_a_child(near_the_limit_what_is_free_goes, "96468992\n"); /* 92 MiB */
    in_a_child(far_from_it_nothing_goes, "1073741824\n");
    in_a_child(without_a_limit_nothing_goes, "max");
    in_a_child(with_the_option_off_nothing_goes, "96468992\n");
    in_a_child(where_nothing_can_be_opened_nothing_goes, "96468992\n");
    in_a_child(what_the_user_set_comes_first, "96468992\n");
    near_the_limit_what_is_free_goes(); /* what a parent did nobody else did */
    in_a_child(a_child_reads_it_anew_by_the_clock, "1073741824\n");
    return EXPECT_RESULT();
}
