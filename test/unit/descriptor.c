/* descriptor.c - what the library writes ends no program, and takes no other process's draft for its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "temporary.h"

#include "os/descriptor.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static void count(int number) {
    (void)number;
    signals++;
}

static bool is_pending(void) {
    sigset_t waiting;
    sigpending(&waiting);
    return sigismember(&waiting, SIGPIPE) == 1;
}

static int nobody_reads(void) {
    int pair[2];
    assert_int_equal(pipe(pair), 0);
    close(pair[0]);
    return pair[1];
}

static void a_pipe_that_nobody_reads_is_an_error_and_no_signal(void **state) {
    (void)state;
    sigset_t before, after, broken;
    signal(SIGPIPE, count);
    signals = 0;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    for (int turn = 0; turn < 3; turn++) { /* free, held back, and held back with one that waits already */
        int fd = nobody_reads(), pair[2];
        if (turn) sigprocmask(SIG_BLOCK, &broken, NULL);
        if (turn == 2) raise(SIGPIPE);
        sigprocmask(SIG_BLOCK, NULL, &before);
        assert_int_equal(hak_os_write_all(fd, "text", 4), -EPIPE);
        hak_os_write(fd, "text", 4);
        close(fd);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        close(pair[0]);
        assert_int_equal(hak_os_write_all(pair[1], "text", 4), -EPIPE);
        close(pair[1]);
        sigprocmask(SIG_BLOCK, NULL, &after);
        assert_memory_equal(&before, &after, 8);
        assert_int_equal(is_pending(), turn == 2);
        assert_int_equal(signals, 0);
    }
    sigprocmask(SIG_UNBLOCK, &broken, NULL);
    assert_int_equal(signals, 1); /* the program's own */
    signal(SIGPIPE, SIG_DFL);
}

/* The kernel answers with what went, and the signal comes all the same. */
static void a_reader_that_goes_in_the_middle_is_no_signal_either(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    static char text[BYTES];
    int pair[2];
    assert_int_equal(pipe(pair), 0);
    pid_t child = fork();
    if (child == 0) {
        close(pair[1]);
        _exit(read(pair[0], text, 1000) < 0); /* the writer waits for room by then, or soon */
    }
    close(pair[0]);
    assert_int_equal(hak_os_write_all(pair[1], text, BYTES), -EPIPE);
    close(pair[1]);
}

static void file_write(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}
static void file_is(const char *name, const char *text) {
    char bytes[64] = "";
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes - 1, file), strlen(text));
    fclose(file);
    assert_string_equal(bytes, text);
}

static void a_draft_takes_the_place_or_goes(void **state) {
    (void)state;
    char folder[200];
    TEMPORARY(folder, "hakmem-drafts-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    file_write("it", "old");
    int fd = hak_os_open_new("draft");
    assert_int_equal(hak_os_write_all(fd, "new", 3), 0);
    assert_int_equal(hak_os_replace(fd, -ENOSPC, "draft", "it"), -ENOSPC);
    file_is("it", "old");
    assert_int_equal(access("draft", F_OK), -1);
    fd = hak_os_open_new("draft");
    assert_int_equal(hak_os_write_all(fd, "new", 3), 0);
    assert_int_equal(hak_os_replace(fd, 0, "draft", "it"), 0);
    file_is("it", "new");
    /* Process 1 of one container, and process 1 of another: the second takes the first's draft for a dead process's. */
    int first = hak_os_open_new("draft");
    assert_int_equal(hak_os_write_all(first, "first", 5), 0);
    int second = hak_os_open_new("draft");
    assert_int_equal(hak_os_replace(first, 0, "draft", "it"), -EBUSY);
    file_is("it", "new");
    assert_int_equal(hak_os_write_all(second, "second", 6), 0);
    assert_int_equal(hak_os_replace(second, 0, "draft", "it"), 0);
    file_is("it", "second");
    assert_int_equal(unlink("it"), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_that_nobody_reads_is_an_error_and_no_signal),
        cmocka_unit_test(a_reader_that_goes_in_the_middle_is_no_signal_either),
        cmocka_unit_test(a_draft_takes_the_place_or_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
