/* abort_in_report.c - a watchdog's SIGABRT comes while a report is written, and its handler leaves that by siglongjmp: the next fault, which
 * the program mends, reaches the program's handler as it is. */
#include "guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>

enum { DEEP = 20, DEEPER = 200 };
static sigjmp_buf away;
static pthread_t reporting;
static char *page, *wrong;

static void leaves(int signal)
{
    (void)signal;
    siglongjmp(away, 1);
}

static void mends(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    if (info->si_addr != page) _exit(94);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static void *watchdog(void *argument)
{
    usleep(300000);
    pthread_kill(reporting, SIGABRT);
    return argument;
}

/* So much of the stack is written, and at its end `wrong` is read. */
NOIPA static void descend(int levels)
{
    volatile char room[512];
    memset((char *)room, 'A', sizeof room);
    if (levels > 0) descend(levels - 1);
    else if (wrong) touch_read(wrong);
    __asm__ volatile("" ::"r"(room) : "memory");
}

static void full_pipe(int ends[2])
{
    char bytes[PAGE] = { 0 };
    if (pipe2(ends, O_NONBLOCK) != 0) _exit(93);
    while (write(ends[1], bytes, sizeof bytes) > 0) {}
    while (write(ends[1], bytes, 1) > 0) {}
    fcntl(ends[1], F_SETFL, 0);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = mends, .sa_flags = SA_SIGINFO };
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGABRT, leaves);
    if (sigaction(SIGSEGV, &action, NULL) != 0) return 97;
    char *block = guarded(16, 100, RIGHT);
    int said = dup(2), ends[2];
    pthread_t thread;
    full_pipe(ends);
    dup2(ends[1], 2);
    reporting = pthread_self();
    if (pthread_create(&thread, NULL, watchdog, NULL) != 0) return 96;
    wrong = block + 112;
    if (sigsetjmp(away, 1) == 0) {
        descend(DEEP);
        return 95;
    }
    wrong = NULL;
    dup2(said, 2);
    pthread_join(thread, NULL);
    descend(DEEPER);
    touch_write(page);
    announce("ends", "0");
    announce("silent", "yes");
    return 0;
}
