/* trusted.c - a file that others replace all the time is opened, and is one of theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "temporary.h"

#include "os/os.h"
#include "os/trusted.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPENED = 5000, BYTES_MAX = 4096, SHORT = 10, LONG = 1000 };
static char folder[200], path[sizeof folder + 8];
static atomic_bool is_over;
static atomic_uint replaced;

static void write_new(size_t bytes) {
    char content[LONG];
    memset(content, 'x', sizeof content);
    if (hak_os_replace_file(path, content, bytes) == 0) atomic_fetch_add(&replaced, 1);
}

static void *replacing(void *unused) {
    (void)unused;
    while (!atomic_load(&is_over)) {
        write_new(SHORT);
        write_new(LONG);
    }
    return NULL;
}

static void a_file_that_is_replaced_meanwhile_is_opened(void **state) {
    (void)state;
    pthread_t thread;
    TEMPORARY(folder, "hakmem-trusted-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    write_new(SHORT);
    assert_int_equal(pthread_create(&thread, NULL, replacing, NULL), 0);
    for (unsigned i = 0; i < OPENED || atomic_load(&replaced) < 100; i++) {
        char content[BYTES_MAX];
        size_t bytes = 0;
        int fd = hak_os_open_trusted(path, BYTES_MAX, &bytes);
        assert_true(fd >= 0);
        assert_true(bytes == SHORT || bytes == LONG);
        assert_int_equal(hak_os_read_all(fd, content, sizeof content), bytes);
        close(fd);
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_replaced_meanwhile_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
