/* group.c - control groups: what their files say, in trees made up here, and what becomes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "temporary.h"

#include "unit/room.h"

#include "hakmem/hakmem.h"
#include "memory/limit.h"
#include "memory/purge.h"
#include "os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
enum { MIB_GRANULES = (1 << 20) / HAK_GRANULE_BYTES };

static char root[200], list[sizeof root + 16];

/* A file and the folders on the way to it. */
static void put_bytes(const char *name, const char *text, size_t count) {
    char path[8192];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, count), (ssize_t)count);
    close(fd);
}
static void put(const char *name, const char *text) { put_bytes(name, text, strlen(text)); }
static void put_list(const char *text) { put("/list", text); }

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static uint64_t memory(void) {
    uint64_t bytes = 77;
    int before = descriptors();
    errno = 4711;
    assert_true(hak_os_group_memory(&bytes));
    assert_int_equal(errno, 4711);
    assert_int_equal(descriptors(), before);
    return bytes;
}

static int tree_make(void **state) {
    (void)state;
    TEMPORARY(root, "hakmem-group-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(list, sizeof list, "%s/list", root);
    hak_os_group_list = list;
    hak_os_group_mount = root;
    return 0;
}

static int tree_end(void **state) {
    (void)state;
    char command[sizeof root + 32];
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
    hak_options.cgroup = 1;
    return 0;
}

/* --- memory --- */

static void the_smallest_limit_on_the_way_up_holds(void **state) {
    (void)state;
    put_list("0::/a/b\n");
    put("/a/b/memory.max", "max\n");
    put("/a/b/memory.high", "max\n");
    put("/a/memory.max", "max\n");
    assert_true(memory() == UINT64_MAX);
    put("/a/b/memory.max", "1073741824\n");
    assert_true(memory() == 1024 * MIB);
    put("/a/memory.max", "536870912\n"); /* the parent's is smaller */
    assert_true(memory() == 512 * MIB);
    put("/a/b/memory.max", "268435456\n");
    assert_true(memory() == 256 * MIB);
    put("/a/memory.high", "134217728\n");
    assert_true(memory() == 128 * MIB);
    put("/memory.max", "67108864"); /* of the mount, as in a container; without a line's end */
    assert_true(memory() == 64 * MIB);
    put("/a/b/memory.high", "0\n");
    assert_true(memory() == 0);
    assert_true(hak_os_memory_limit() == 0);
}

static void in_a_container_the_mount_is_the_group(void **state) {
    (void)state;
    put_list("0::/\n");
    assert_true(memory() == UINT64_MAX); /* a machine's own root has no such file */
    put("/memory.max", "104857600\n");
    assert_true(memory() == 100 * MIB);
    put_list("0::/kubepods.slice/cri-containerd-0123.scope\n"); /* the host's path, which is not to be seen here */
    assert_true(memory() == 100 * MIB);
    put_list("0::/gone (deleted)");
    assert_true(memory() == 100 * MIB);
}

static void version_1_has_a_tree_for_each_controller(void **state) {
    (void)state;
    put_list("12:cpuset:/\n11:hugetlb,memory:/box\n4:name=systemd:/memory\n3:memorymore:/other\n2:cpu,cpuacct:/box\n1:memor:/other\n");
    put("/memory/other/memory.limit_in_bytes", "1048576\n");
    put("/memory/box/memory.limit_in_bytes", "209715200\n");
    put("/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(memory() == 200 * MIB);
    put("/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(memory() == UINT64_MAX);
    put("/memory/memory.limit_in_bytes", "104857600\n"); /* Docker: the path is the host's */
    put_list("11:memory:/docker/0123456789\n");
    assert_true(memory() == 100 * MIB);
}

static void a_hybrid_has_memory_in_either_tree(void **state) {
    (void)state;
    put_list("5:memory:/box\n0::/box/unit\n");
    put("/unified/box/unit/cgroup.procs", "");
    put("/memory/box/memory.limit_in_bytes", "209715200\n");
    assert_true(memory() == 200 * MIB);
    put("/unified/box/memory.max", "104857600\n");
    assert_true(memory() == 100 * MIB);
}

static void a_group_outside_of_the_namespace_is_looked_for_by_name(void **state) {
    (void)state;
    put("/memory.max", "1048576\n"); /* another's */
    put_list("0::/..\n");
    assert_true(memory() == UINT64_MAX);
    put_list("0::/../../other/unit\n");
    assert_true(memory() == UINT64_MAX);
    put("/other/memory.max", "104857600\n"); /* the whole tree is mounted here */
    assert_true(memory() == 100 * MIB);
    put_list("0::/other/../../../../../../../../etc\n");
    assert_true(memory() == UINT64_MAX);
    put_list("0::/other/..\n");
    assert_true(memory() == UINT64_MAX);
    put_list("0::/..other\n");
    put("/..other/memory.max", "209715200\n"); /* a name like any */
    put("/memory.max", "max\n");
    assert_true(memory() == 200 * MIB);
}

static void what_cannot_be_read_is_no_limit(void **state) {
    (void)state;
    uint64_t bytes = 0;
    assert_false(hak_os_group_memory(&bytes)); /* no list: a chroot without /proc */
    assert_true(bytes == UINT64_MAX);
    assert_int_equal(hak_os_group_processors(), 0);
    static const char *const lists[] = { "", "\n", "\n\n:\n", ":", "::", "0", "0:", "0::", "0::\n", "0::relative\n",
                                         "memory", "5:memory", "5:memory:", ":::::" };
    put("/memory.max", "1048576\n");
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        put_list(lists[i]);
        assert_true(memory() == UINT64_MAX);
    }
    put_list("0::/\n");
    static const char *const texts[] = { "", "\n", "max", "-1\n", " 5\n", "0x10", "99999999999999999999999999", "18446744073709551616\n",
                                         "18446744073709551615\n",
                                         "1152921504606846976\n" };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        put("/memory.max", texts[i]);
        assert_true(memory() == UINT64_MAX);
    }
    assert_int_equal(mkdir(strcat(strcpy(list, root), "/folder"), 0700), 0);
    assert_true(hak_os_group_memory(&bytes) && bytes == UINT64_MAX); /* it opens, and gives nothing */
    snprintf(list, sizeof list, "%s/list", root);
}

static void hostile_texts_end(void **state) {
    (void)state;
    static char text[1 << 20];
    memset(text, '7', sizeof text);
    put_list("0::/\n");
    put_bytes("/memory.max", text, sizeof text);
    assert_true(memory() == UINT64_MAX);
    put("/memory.max", "1048576\n");
    memset(text, 'x', sizeof text);
    put_bytes("/list", text, sizeof text); /* no line's end */
    assert_true(memory() == UINT64_MAX);
    memcpy(text, "0::/", 4);
    put_bytes("/list", text, sizeof text); /* a name that is longer than names are: of its parents there is the mount */
    assert_true(memory() == MIB);
    for (unsigned i = 4; i < 4096; i++) text[i] = i % 8 == 7 ? '/' : 'a';
    strcpy(text + 4096, "\n5:memory:/box\n");
    put_bytes("/list", text, strlen(text)); /* 512 folders, of which the nearest that fit are looked at */
    put("/memory/box/memory.limit_in_bytes", "524288\n");
    assert_true(memory() == 524288);
    for (unsigned i = 0; i < 4086; i += 3) memcpy(text + 4 + i, "/..", 3);
    put_bytes("/list", text, strlen(text));
    assert_true(memory() == 524288);
    for (unsigned i = 0; i < sizeof text; i += 8) memcpy(text + i, "9:cpu:/\n", 8); /* the line lies behind what is read */
    memcpy(text + sizeof text - 8, "0::/box\n", 8);
    put_bytes("/list", text, sizeof text);
    assert_true(memory() == UINT64_MAX);
}

/* Each length, so that each stands at the end of what is read at once, and of the room for a path. */
static void a_path_of_any_length_is_found_or_its_parents_are(void **state) {
    (void)state;
    char text[2048], name[2048];
    put("/memory.max", "4194304\n");
    for (unsigned length = 1; length < 1300; length += length < 230 || (length > 950 && length < 1010) ? 1 : 41) {
        char *to = text + sprintf(text, "1:name=systemd:/\n0::");
        for (unsigned i = 0; i < length; i++) *to++ = i % 200 == 0 ? '/' : 'n';
        strcpy(to, "/last\n2:cpu:/\n");
        put_list(text);
        assert_true(memory() == 4 * MIB);
        if (length > 950 || length % 7) continue;
        snprintf(name, sizeof name, "%.*s/last/memory.max", (int)length, strchr(text, '\n') + 4);
        put(name, "1048576\n");
        assert_true(memory() == MIB);
        snprintf(text, sizeof text, "%s%s", root, name);
        assert_int_equal(unlink(text), 0);
    }
}

/* --- processors --- */

static void a_quota_is_rounded_up_to_processors(void **state) {
    (void)state;
    put_list("0::/a\n");
    assert_int_equal(hak_os_group_processors(), 0);
    put("/a/cpu.max", "max 100000\n");
    assert_int_equal(hak_os_group_processors(), 0);
    put("/a/cpu.max", "200000 100000\n");
    assert_int_equal(hak_os_group_processors(), 2);
    put("/a/cpu.max", "200001 100000\n");
    assert_int_equal(hak_os_group_processors(), 3);
    put("/cpu.max", "5000 100000\n"); /* the parent's */
    assert_int_equal(hak_os_group_processors(), 1);
    static const char *const none[] = { "", "max", "7", "7 0\n", "7 -1\n", "0 100000\n", "99999999999999999999999 1\n", "7 99999999999999999999999\n" };
    put("/a/cpu.max", "");
    for (unsigned i = 0; i < sizeof none / sizeof *none; i++) {
        put("/cpu.max", none[i]);
        assert_int_equal(hak_os_group_processors(), 0);
    }
    put("/cpu.max", "1152921504606846975 1\n");
    assert_int_equal(hak_os_group_processors(), UINT32_MAX);
    put_list("3:cpu,cpuacct:/docker/01\n");
    put("/cpu.max", "");
    put("/cpu/cpu.cfs_quota_us", "-1\n");
    put("/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(hak_os_group_processors(), 0);
    put("/cpu/cpu.cfs_quota_us", "350000\n");
    assert_int_equal(hak_os_group_processors(), 4);
    put("/cpu/cpu.cfs_period_us", "");
    assert_int_equal(hak_os_group_processors(), 0);
}

/* --- the soft limit that comes of it --- */

static void the_soft_limit_follows_the_group(void **state) {
    (void)state;
    uint64_t now = 1000;
    room_region_start();
    hak_options.cgroup = 1;
    put_list("0::/\n");
    put("/memory.max", "104857600\n");
    hak_limit_group_look(now);
    assert_int_equal(HAK_OPT(limit_soft_mb), 90);
    assert_int_equal(hak_load_relaxed(&hak_limit_group_bytes), 100 * MIB);
    put("/memory.max", "209715200\n"); /* resized in place */
    hak_limit_group_look(now + HAK_LIMIT_GROUP_MS - 1);
    assert_int_equal(HAK_OPT(limit_soft_mb), 90);
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 180);
    put("/memory.max", "max\n");
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 0);
    assert_int_equal(hak_load_relaxed(&hak_limit_group_bytes), 0);
    put("/memory.max", "0\n"); /* not none */
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 1);
    hak_options.cgroup = 0;
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 0);
    hak_options.cgroup = 1;
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 1);
    hak_limit_group_forget(); /* a forked child does not wait */
    put("/memory.max", "104857600\n");
    hak_limit_group_look(now + 1);
    assert_int_equal(HAK_OPT(limit_soft_mb), 90);
    assert_int_equal(unlink(list), 0);
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS + 1);
    assert_int_equal(HAK_OPT(limit_soft_mb), 0);
    put_list("0::/\n");
    hak_limit_group_look(now += HAK_LIMIT_GROUP_MS); /* who was refused once does not ask again */
    assert_int_equal(HAK_OPT(limit_soft_mb), 0);
    hak_limit_group_forget();
}

/* Who shares our memory and is another process may be in another group. */
static void a_process_that_shares_memory_leaves_it_alone(void **state) {
    (void)state;
    put_list("0::/\n");
    put("/memory.max", "104857600\n");
    hak_limit_group_look(1);
    assert_int_equal(HAK_OPT(limit_soft_mb), 90);
    put("/memory.max", "209715200\n");
    pid_t child = vfork();
    if (child == 0) {
        hak_limit_group_look(1 + HAK_LIMIT_GROUP_MS);
        _exit(0);
    }
    assert_true(child > 0);
    waitpid(child, NULL, 0);
    assert_int_equal(HAK_OPT(limit_soft_mb), 90);
    hak_limit_group_look(1 + HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 180);
    hak_limit_group_forget();
}

/* Before it is touched, what is free makes room for a span. */
static void a_span_that_is_taken_makes_room_for_itself(void **state) {
    (void)state;
    enum { FREED = 5 * MIB_GRANULES };
    size_t dirty, wall = hak_span_take(MIB_GRANULES, 1, &dirty), freed = hak_span_take(FREED, 1, &dirty);
    size_t end = hak_span_take(MIB_GRANULES, 1, &dirty), used;
    memset(hak_granule_address(freed), 1, (size_t)FREED << HAK_GRANULE_SHIFT);
    hak_span_give(freed, FREED, HAK_SPAN_DIRTY);
    hak_store_relaxed(&hak_limit_group_due_ms, UINT64_MAX); /* no look: it grows beyond 32 MiB */
    hak_options.limit_soft_mb = 100;
    used = hak_span_take_in(NULL, 93 * MIB_GRANULES, 1, &dirty);
    assert_int_equal(hak_load_relaxed(&hak_purge.free_bytes), 5 * MIB);
    hak_span_give(used, 93 * MIB_GRANULES, HAK_SPAN_AS_IT_WAS);
    used = hak_span_take_in(NULL, 97 * MIB_GRANULES, 1, &dirty);
    assert_true(hak_load_relaxed(&hak_purge.free_bytes) <= (int64_t)MIB);
    hak_options.limit_soft_mb = 0;
    hak_span_give(used, 97 * MIB_GRANULES, HAK_SPAN_AS_IT_WAS);
    hak_span_give(wall, MIB_GRANULES, HAK_SPAN_AS_IT_WAS);
    hak_span_give(end, MIB_GRANULES, HAK_SPAN_AS_IT_WAS);
    hak_limit_group_forget();
}

/* Last, for it stays so: what the user says holds, and nothing is read. */
static void what_the_user_set_stands(void **state) {
    (void)state;
    put_list("0::/\n");
    put("/memory.max", "104857600\n");
    hak_limit_group_look(1);
    assert_int_equal(HAK_OPT(limit_soft_mb), 90);
    assert_int_equal(hak_option_set("limit_soft_mb", "0"), 0);
    hak_limit_group_look(1 + HAK_LIMIT_GROUP_MS);
    assert_int_equal(HAK_OPT(limit_soft_mb), 0);
    assert_int_equal(hak_load_relaxed(&hak_limit_group_due_ms), 1 + HAK_LIMIT_GROUP_MS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_make, tree_end)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_smallest_limit_on_the_way_up_holds),
        TEST(in_a_container_the_mount_is_the_group),
        TEST(version_1_has_a_tree_for_each_controller),
        TEST(a_hybrid_has_memory_in_either_tree),
        TEST(a_group_outside_of_the_namespace_is_looked_for_by_name),
        TEST(what_cannot_be_read_is_no_limit),
        TEST(hostile_texts_end),
        TEST(a_path_of_any_length_is_found_or_its_parents_are),
        TEST(a_quota_is_rounded_up_to_processors),
        TEST(the_soft_limit_follows_the_group),
        TEST(a_process_that_shares_memory_leaves_it_alone),
        TEST(a_span_that_is_taken_makes_room_for_itself),
        TEST(what_the_user_set_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
