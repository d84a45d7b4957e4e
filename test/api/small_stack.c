/* small_stack.c - a thread of the smallest stack there is asks for what the library knows, or ends the process that has to say it.
 *
 * Source: pthread_attr_setstacksize(3), PTHREAD_STACK_MIN.
 * ctest: native
 */
#include "expect.h"

#include "hakmem/hakmem.h"

#include <limits.h>
#include <pthread.h>

#if defined __OPTIMIZE__ && !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__
enum { IS_CHECKED = 1 };
#else
enum { IS_CHECKED = 0 };
#endif

static void *ask(void *unused)
{
    EXPECT(hak_stats_prometheus(NULL, 0) > 1000);
    EXPECT(hak_stats_json(NULL, 0) > 1000);
#ifdef __GLIBC__
    (void)mallinfo2();
#endif
    return unused;
}

static void *leave(void *unused)
{
    (void)unused;
    exit(0);
}

static void with_the_smallest_stack(void *(*run)(void *))
{
#ifdef __GLIBC__
    size_t bytes = (size_t)sysconf(_SC_THREAD_STACK_MIN);
#else
    size_t bytes = 32 << 10; /* musl's 2 KiB bear no function of its own that prints */
#endif
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
    REQUIRE(pthread_create(&thread, &attributes, run, NULL) == 0);
    pthread_join(thread, NULL);
}

static void leave_in_child(const char *name, const char *value)
{
    pid_t child = fork();
    if (child == 0) {
        setenv(name, value, 1);
        freopen("/dev/null", "w", stderr);
        execl("/proc/self/exe", "small_stack", "leave", (char *)NULL);
        _exit(126);
    }
    int status = child_wait(child, 30);
    EXPECT_SAY(status == 0, "%s: status %#x", name, (unsigned)status);
}

int main(int argument_count, char **arguments)
{
    (void)arguments;
    if (argument_count > 1) {
        with_the_smallest_stack(leave);
        return 1;
    }
    if (!IS_CHECKED)
        return EXPECT_SKIPPED; /* frames are larger */
    with_the_smallest_stack(ask);
    leave_in_child("HAKMEM_STATS", "1");
    leave_in_child("HAKMEM_REPORT", "/dev/null");
    return EXPECT_RESULT();
}
