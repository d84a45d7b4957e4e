/* start.c - the window is found once, whoever comes in the middle: a signal handler of the same thread, a forked child.
 *
 * Method: who comes in the middle comes as the first mapping is asked for; the program has one thread, so that it cannot have
 *         finished meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "memory/chunk.h"
#include "os/os.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS_MAX = 20 };
static unsigned calls, inside, refused, from_call;

/* In the child: the window is found anew, and works. */
static int child(void) {
    alarm(SECONDS_MAX);
    room_region_start();
    size_t dirty, granule = hak_span_take(100, 1, &dirty);
    if (granule == HAK_NO_GRANULE || !hak_region_holds(hak_granule_address(granule))) return 2;
    memset(hak_granule_address(granule), 1, 100 * (size_t)HAK_GRANULE_BYTES);
    hak_span_give(granule, 100, HAK_SPAN_DIRTY);
    return hak_region_start(0) ? 0 : 3;
}

static bool in_the_middle(enum hak_os_call call) {
    (void)call;
    if (inside || ++calls < from_call) return false;
    inside = 1;
    if (!hak_region_start(0)) refused++; /* a handler's: it spun for ever */
    pid_t pid = fork();
    if (pid == 0) _exit(child());
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

/* Before each of the calls that the start makes: nothing is there yet, or all but the last. */
static void who_comes_in_the_middle_neither_waits_nor_harms(void **state) {
    (void)state;
    unsigned rounds = 0;
    for (bool more = true; more; rounds++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(SECONDS_MAX);
            from_call = rounds + 1;
            hak_os_fault = in_the_middle;
            room_region_start();
            hak_os_fault = NULL;
            bool is_good = hak_region_start(0) && refused == inside;
            _exit(!is_good ? 2 : inside ? 0 : 1);
        }
        int status;
        REQUIRE(waitpid(pid, &status, 0) == pid);
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        more = WEXITSTATUS(status) == 0;
    }
    assert_true(rounds > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(who_comes_in_the_middle_neither_waits_nor_harms) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
