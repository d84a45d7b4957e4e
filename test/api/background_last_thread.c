/* background_last_thread.c - HAKMEM_BACKGROUND=1: a process ends with the program's last thread, though the library's own goes on.
 *
 * Owns:   a child that is its own program anew: its first thread ends by pthread_exit, a second somewhat later.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>

static void at_end(void) { REQUIRE(write(1, "over\n", 5) == 5); }

static void *worker(void *unused)
{
    usleep(300 * 1000);
    return unused;
}

static void the_process_ends_with_the_programs_last_thread(void)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        setenv("HAKMEM_BACKGROUND", "1", 1);
        execl("/proc/self/exe", "background_last_thread", "child", (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    int status = child_wait(child, 20);
    EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    char said[16] = "";
    EXPECT(read(ends[0], said, sizeof said - 1) == 5 && strcmp(said, "over\n") == 0); /* by exit: what was registered ran */
}

int main(int argument_count, char **arguments)
{
    (void)arguments;
    if (argument_count > 1) {
        pthread_t thread;
        atexit(at_end);
        free(malloc(100));
        REQUIRE(pthread_create(&thread, NULL, worker, NULL) == 0);
        pthread_detach(thread);
        pthread_exit(NULL);
    }
    RUN(the_process_ends_with_the_programs_last_thread);
    return EXPECT_RESULT();
}
