/* report.c - the report at exit: whole files or none, one line on failure, once in each process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "temporary.h"

#include "front/report.h"
#include "hakmem/hakmem.h"
#include "rules/counters.h"
#include "rules/options.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The numbers are this test's: the room is tested, not the allocator. */
static bool numbers_are_largest;
void hak_stats_get(struct hak_stats *stats, size_t bytes) {
    memset(stats, 0, bytes);
    uint64_t number = numbers_are_largest ? UINT64_MAX : 1234567;
    stats->live_bytes = stats->returned_bytes = number;
    stats->class_count = numbers_are_largest ? HAK_CLASS_COUNT_MAX : 3;
    stats->counter_count = HAK_COUNTER_COUNT;
    for (unsigned i = 0; i < stats->class_count; i++)
        stats->class_stats[i] = (struct hak_class_stats){ 16 * (i + 1), i == 1 ? 0 : 7, i == 1 ? 0 : number, number, number };
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
        stats->counter[i] = number;
}

static char folder[200];
static char path[sizeof folder + 32], said[65536], written[65536];

static int folder_make(void **state) {
    (void)state;
    TEMPORARY(folder, "hakmem-report-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static unsigned folder_files(bool remove_them) {
    unsigned count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.') {
            count++;
            if (remove_them)
                assert_int_equal(unlinkat(dirfd(directory), entry->d_name, 0), 0);
        }
    closedir(directory);
    return count;
}

static int folder_remove(void **state) {
    (void)state;
    folder_files(true);
    return rmdir(folder);
}

static size_t file_read(const char *name, char bytes[65536]) {
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return 0;
    size_t used = 0;
    ssize_t part;
    while ((part = read(fd, bytes + used, 65535 - used)) > 0)
        used += (size_t)part;
    close(fd);
    bytes[used] = 0;
    return used;
}

/* A child ends as a process does, with these options; returns its id, and `said` is its standard error. */
static pid_t process_ends(const char *report, bool stats, bool closes_stderr, int times) {
    char errors[sizeof folder + 32];
    snprintf(errors, sizeof(errors), "%s.%d.err", folder, getpid());
    pid_t child = fork();
    if (child == 0) {
        int fd = open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 2);
        hak_options.stats = stats;
        strcpy(hak_options.report, report);
        hak_report_at_start();
        if (closes_stderr)
            close(2);
        for (int i = 0; i < times; i++)
            hak_report_at_exit();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    said[0] = 0;
    file_read(errors, said);
    unlink(errors);
    return child;
}

static unsigned count_of(const char *text, const char *part) {
    unsigned count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

static void json_is_measured_and_cut_like_snprintf(void **state) {
    (void)state;
    static char whole[65536], cut[65536];
    size_t length = hak_stats_json(whole, sizeof(whole));
    assert_int_equal(strlen(whole), length);
    assert_string_equal(whole + length - 3, "\n}\n");
    assert_int_equal(hak_stats_json(NULL, 0), length);
    for (size_t bytes = 1; bytes < length + 3; bytes += 37) {
        memset(cut, 'x', sizeof(cut));
        assert_int_equal(hak_stats_json(cut, bytes), length);
        size_t held = bytes <= length ? bytes - 1 : length;
        assert_memory_equal(cut, whole, held);
        assert_int_equal(cut[held], 0);
        assert_int_equal(cut[bytes], 'x');
    }
    assert_int_equal(count_of(whole, "\"bytes\": 32,"), 0); /* a class that was never used */
    assert_int_equal(count_of(whole, "\"slabs\": 7,"), 2);
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
        assert_non_null(strstr(whole, hak_counter_rows[i].name));
}

static void without_options_nothing_is_written(void **state) {
    (void)state;
    process_ends("", false, false, 1);
    assert_string_equal(said, "");
}

static void the_file_gets_the_process_id_and_leaves_nothing_beside_it(void **state) {
    (void)state;
    snprintf(path, sizeof(path), "%s/%%p-100%%%%.json", folder);
    pid_t child = process_ends(path, false, false, 3);
    assert_string_equal(said, "");
    assert_int_equal(folder_files(false), 1);
    snprintf(path, sizeof(path), "%s/%d-100%%.json", folder, child);
    assert_true(file_read(path, written) > 100);
    assert_int_equal(written[0], '{');
    assert_string_equal(written + strlen(written) - 3, "\n}\n");
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600);
    folder_files(true);
}

static void a_file_larger_than_the_buffer_is_whole(void **state) {
    (void)state;
    snprintf(path, sizeof(path), "%s/large.json", folder);
    numbers_are_largest = true;
    process_ends(path, true, false, 1);
    assert_true(file_read(path, written) > 10000);
    static char whole[65536];
    assert_int_equal(hak_stats_json(whole, sizeof(whole)), strlen(written));
    numbers_are_largest = false;
    assert_int_equal(count_of(said, "statistics of process"), 1);
    assert_non_null(strstr(said, "18,446,744,073,709,551,615"));
    folder_files(true);
}

static void an_old_file_stays_when_the_new_one_fails(void **state) {
    (void)state;
    if (geteuid() == 0)
        skip(); /* root may write everywhere */
    snprintf(path, sizeof(path), "%s/old.json", folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "old", 3), 3);
    close(fd);
    chmod(folder, 0500);
    process_ends(path, false, false, 1);
    chmod(folder, 0700);
    assert_int_equal(count_of(said, "\n"), 1);
    assert_int_equal(file_read(path, written), 3);
    folder_files(true);
}

static void failures_are_one_line(void **state) {
    (void)state;
    static const struct { const char *path, *line; } rows[] = {
        { "/no/such/folder/x", "hakmem: HAKMEM_REPORT: /no/such/folder/x cannot be written: no such file or directory\n" },
        { "/dev/full", "hakmem: HAKMEM_REPORT: /dev/full cannot be written: no space left\n" },
        { "/dev/no-such-device", "hakmem: HAKMEM_REPORT: /dev/no-such-device cannot be written: no such file or directory\n" },
        { "/tmp", "hakmem: HAKMEM_REPORT: /tmp cannot be written: it is a directory\n" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        process_ends(rows[i].path, false, i % 2, 1);
        if (i != 2 || geteuid() == 0)
            assert_string_equal(said, rows[i].line);
        assert_int_equal(count_of(said, "\n"), 1);
    }
    assert_int_equal(access("/dev/no-such-device", F_OK), -1);
}

/* A pipe in our own folder stands for every device: were this broken, /dev/null would be lost to a test. */
static void what_is_no_file_is_written_to_and_stays(void **state) {
    (void)state;
    struct stat before, after;
    snprintf(path, sizeof(path), "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lstat(path, &before), 0);
    int fd = open(path, O_RDWR); /* so that the writer finds a reader */
    process_ends(path, false, false, 1);
    assert_string_equal(said, "");
    assert_true(read(fd, written, sizeof(written)) > 100);
    assert_int_equal(written[0], '{');
    close(fd);
    assert_int_equal(lstat(path, &after), 0);
    assert_true(S_ISFIFO(after.st_mode) && before.st_ino == after.st_ino);
    assert_int_equal(folder_files(true), 1);
}

/* The program's end does not wait for a reader, who may never come. */
static void a_pipe_that_nobody_reads_is_told(void **state) {
    (void)state;
    snprintf(path, sizeof(path), "%s/pipe-alone", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    process_ends(path, false, false, 1);
    assert_int_equal(count_of(said, "\n"), 1);
    assert_non_null(strstr(said, "cannot be written"));
    assert_int_equal(unlink(path), 0);
}

static void the_table_is_printed_once_also_after_stderr_was_closed(void **state) {
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        process_ends("", true, closes, 2);
        assert_int_equal(count_of(said, "statistics of process"), 1);
        assert_int_equal(count_of(said, " 1,234,567 bytes "), 2);
        assert_int_equal(said[strlen(said) - 1], '\n');
        for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
            assert_non_null(strstr(said, hak_counter_rows[i].what));
    }
}

static void a_file_under_our_copys_number_is_left_alone(void **state) {
    (void)state;
    snprintf(path, sizeof(path), "%s/own", folder);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        hak_options.stats = 1;
        hak_report_at_start();
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        for (int copy = 64; copy < 70; copy++)
            dup2(fd, copy); /* as after closefrom(3) and many opens */
        hak_report_at_exit();
        _exit(0);
    }
    close(ends[1]);
    waitpid(child, NULL, 0);
    assert_true(read(ends[0], said, sizeof(said) - 1) > 100);
    close(ends[0]);
    assert_int_equal(file_read(path, written), 0);
    folder_files(true);
}

static void a_forked_child_reports_for_itself(void **state) {
    (void)state;
    snprintf(path, sizeof(path), "%s/%%p", folder);
    strcpy(hak_options.report, path);
    pid_t child = fork();
    if (child == 0) {
        hak_report_at_exit();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            hak_report_at_exit();
            _exit(0);
        }
        waitpid(grandchild, NULL, 0);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    hak_options.report[0] = 0;
    assert_int_equal(folder_files(true), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_measured_and_cut_like_snprintf),
        cmocka_unit_test(without_options_nothing_is_written),
        cmocka_unit_test(the_file_gets_the_process_id_and_leaves_nothing_beside_it),
        cmocka_unit_test(a_file_larger_than_the_buffer_is_whole),
        cmocka_unit_test(an_old_file_stays_when_the_new_one_fails),
        cmocka_unit_test(failures_are_one_line),
        cmocka_unit_test(what_is_no_file_is_written_to_and_stays),
        cmocka_unit_test(a_pipe_that_nobody_reads_is_told),
        cmocka_unit_test(the_table_is_printed_once_also_after_stderr_was_closed),
        cmocka_unit_test(a_file_under_our_copys_number_is_left_alone),
        cmocka_unit_test(a_forked_child_reports_for_itself),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
