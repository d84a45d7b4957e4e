/* crash_report.c - HAKMEM_CRASH_REPORT=1 says what is known of a bad address, then the program dies as it would have.
 *
 * Owns:   children that run this program again with a crash to make; no core files.
 * Method: a block's own page is made inaccessible, so that touching the block faults whatever the library does.
 */
#include "expect.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static void *hidden(const volatile void *ptr)
{
    void *out = (void *)(uintptr_t)ptr;
    __asm__ volatile("" : "+r"(out) : : "memory");
    return out;
}

/* --- the crashes: run in a child ---------------------------------------------------------------- */

/* One of several, so that its slab stays when it is freed. */
static char *block_without_access(size_t bytes)
{
    char *block = NULL;
    for (int i = 0; i < 20; i++) {
        char *next = (char *)memalign((size_t)sysconf(_SC_PAGESIZE), bytes);
        if (i == 10)
            block = next;
    }
    if (!block || mprotect(block, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE) != 0)
        _exit(99);
    printf("%p\n", (void *)block);
    printf("%zu\n", malloc_usable_size(block));
    fflush(stdout);
    return (char *)hidden(block);
}

static void own_handler(int signal)
{
    static const char line[] = "own handler\n";
    ssize_t ignored = write(2, line, sizeof line - 1);
    (void)ignored;
    _exit(40 + signal);
}

static void *crash_in_thread(void *unused)
{
    *(volatile char *)hidden((void *)24) = 1;
    return unused;
}

static int depth_use(volatile char *above)
{
    volatile char bytes[8192];
    bytes[0] = above[0];
    if (hidden(bytes) == NULL)
        return 0;
    return depth_use(bytes) + bytes[0];
}

/* In front of the library's handler, which after its report restores the default action and returns. */
static struct sigaction the_librarys;
static char area[128 * 1024];
static void call_and_look(int signal, siginfo_t *info, void *context)
{
    the_librarys.sa_sigaction(signal, info, context);
    size_t overwritten = 0;
    for (size_t i = 0; i < sizeof area / 2; i++)
        overwritten += area[i] != 0x5a;
    printf("%zu\n", overwritten);
    fflush(stdout);
    _exit(0);
}

/* So much more than the kernel's frame needs, with nothing below it but what must not be written to. Says how many bytes were. */
static void crash_on_small_stack(size_t more_bytes)
{
    size_t frame_bytes = getauxval(AT_MINSIGSTKSZ);
    stack_t stack = {.ss_sp = area + sizeof area / 2, .ss_size = (frame_bytes ? frame_bytes : MINSIGSTKSZ) + more_bytes};
    memset(area, 0x5a, sizeof area);
    if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGSEGV, NULL, &the_librarys) != 0 || !(the_librarys.sa_flags & SA_SIGINFO))
        _exit(98);
    struct sigaction action = the_librarys;
    action.sa_sigaction = call_and_look;
    sigaction(SIGSEGV, &action, NULL);
    *(volatile char *)hidden((void *)16) = 1;
}

/* Nobody reads what is said, so that a thread waits in its report for ever; in another's child one more does, and is interrupted there. */
static int crash_in_fork(void)
{
    int ends[2], status = 0;
    static const char bytes[4096];
    if (pipe(ends) != 0)
        return 98;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], bytes, sizeof bytes) > 0) {}
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], 2);
    pthread_t thread;
    pthread_create(&thread, NULL, crash_in_thread, NULL);
    usleep(300000);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        pthread_create(&thread, NULL, crash_in_thread, NULL);
        usleep(300000);
        pthread_kill(thread, SIGABRT); /* as a fault of the report's own would come */
        pthread_join(thread, NULL);
    }
    waitpid(child, &status, 0);
    _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 7 : 97);
}

#if defined(__x86_64__)
/* SIGUSR1 finds no room for its frame: the kernel sends SIGSEGV, and no instruction will fault again. */
static volatile int is_over;
static pthread_t main_thread;
static void *kill_main(void *unused)
{
    usleep(100000);
    pthread_kill(main_thread, SIGUSR1);
    usleep(300000);
    is_over = 1;
    return unused;
}
static int lose_a_frame(void)
{
    signal(SIGUSR1, own_handler);
    main_thread = pthread_self();
    char *pages = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_READ | PROT_WRITE);
    pthread_t thread;
    pthread_create(&thread, NULL, kill_main, NULL);
    __asm__ volatile("movq %%rsp, %%r12\n\tmovq %0, %%rsp\n1:\tpause\n\tcmpl $0, (%1)\n\tje 1b\n\tmovq %%r12, %%rsp"
                     : : "r"(pages + 4096 + 512), "r"(&is_over) : "r12", "memory", "cc");
    pthread_join(thread, NULL);
    return 0;
}
#endif

static int crash(const char *how)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (strcmp(how, "null") == 0)
        *(volatile char *)hidden((void *)16) = 1;
    else if (strcmp(how, "live") == 0)
        return block_without_access(4000)[100];
    else if (strcmp(how, "live-large") == 0)
        return block_without_access(1 << 20)[100];
    else if (strcmp(how, "freed") == 0) {
        char *block = block_without_access(4000);
        free(block);
        return *(volatile char *)hidden(block + 100);
    } else if (strcmp(how, "foreign") == 0)
        return *(volatile char *)hidden(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    else if (strcmp(how, "wild") == 0)
        return *(volatile char *)hidden((void *)0x6b6b6b6b6b6b6b6b);
    else if (strcmp(how, "bus") == 0) {
        FILE *file = tmpfile();
        return *(volatile char *)hidden(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0));
    } else if (strcmp(how, "abort") == 0)
        abort();
    else if (strcmp(how, "kill") == 0) {
        kill(getpid(), SIGSEGV);
        pause();
    } else if (strcmp(how, "overflow") == 0) {
        char start = 1;
        return depth_use(&start);
    } else if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, crash_in_thread, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(how, "later-handler") == 0) {
        signal(SIGSEGV, own_handler);
        *(volatile char *)hidden((void *)16) = 1;
    } else if (strcmp(how, "ignore-abort") == 0) {
        signal(SIGABRT, SIG_IGN);
        raise(SIGABRT);
    } else if (strcmp(how, "small-stack") == 0) {
        crash_on_small_stack(1536);
    } else if (strcmp(how, "fork") == 0) {
        return crash_in_fork();
#if defined(__x86_64__)
    } else if (strcmp(how, "no-frame") == 0) {
        return lose_a_frame();
#endif
    } else if (strcmp(how, "misuse") == 0)
        free((char *)hidden(malloc(100)) + 16);
    return 0;
}

/* --- the parent --------------------------------------------------------------------------------- */

static char out[4096], said[16384];

static int child_crashes(const char *how, bool reports)
{
    int out_ends[2], err_ends[2];
    REQUIRE(pipe(out_ends) == 0 && pipe(err_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(out_ends[1], 1);
        dup2(err_ends[1], 2);
        if (reports)
            setenv("HAKMEM_CRASH_REPORT", "1", 1);
        else
            unsetenv("HAKMEM_CRASH_REPORT");
        execl("/proc/self/exe", "crash_report", how, (char *)NULL);
        _exit(126);
    }
    close(out_ends[1]);
    close(err_ends[1]);
    size_t used = 0;
    ssize_t part;
    while ((part = read(out_ends[0], out + used, sizeof out - 1 - used)) > 0)
        used += (size_t)part;
    out[used] = 0;
    used = 0;
    while ((part = read(err_ends[0], said + used, sizeof said - 1 - used)) > 0)
        used += (size_t)part;
    said[used] = 0;
    close(out_ends[0]);
    close(err_ends[0]);
    return child_wait(child, 30);
}

static bool dies_by(int status, int signal)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static bool first_line_has(const char *part)
{
    const char *end = strchr(said, '\n'), *found = strstr(said, part);
    return end && found && found < end;
}

static bool lines_are_ours(void)
{
    for (const char *line = said; *line; line = strchr(line, '\n') + 1)
        if (strncmp(line, "hakmem: ", 8) != 0 || !strchr(line, '\n'))
            return false;
    return true;
}

static void without_the_option_nothing_is_said(void)
{
    EXPECT(dies_by(child_crashes("null", false), SIGSEGV));
    EXPECT_SAY(said[0] == 0, "%s", said);
    EXPECT(dies_by(child_crashes("abort", false), SIGABRT));
    EXPECT_SAY(said[0] == 0, "%s", said);
}

static void a_null_pointer_is_called_one(void)
{
    EXPECT(dies_by(child_crashes("null", true), SIGSEGV));
    EXPECT_SAY(first_line_has("hakmem: SIGSEGV: ") && first_line_has(" 0x10 ") && first_line_has("NULL"), "%s", said);
    EXPECT_SAY(lines_are_ours(), "%s", said);
}

static void a_blocks_size_and_state_are_told(void)
{
    static const struct {
        const char *how, *state;
    } cases[] = {{"live", "live"}, {"live-large", "live"}, {"freed", "free"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EXPECT(dies_by(child_crashes(cases[i].how, true), SIGSEGV));
        void *block = NULL;
        char size[32] = "", address[32];
        REQUIRE(sscanf(out, "%p\n%30s", &block, size) == 2);
        snprintf(address, sizeof address, "%p", (void *)((char *)block + 100));
        EXPECT_SAY(first_line_has(address) && first_line_has(size) && first_line_has(cases[i].state),
                   "%s, %s bytes, said %s", address, size, said);
        EXPECT_SAY(lines_are_ours(), "%s", said);
    }
}

static void memory_of_others_is_not_called_ours(void)
{
    EXPECT(dies_by(child_crashes("foreign", true), SIGSEGV));
    EXPECT_SAY(first_line_has("hakmem: SIGSEGV: ") && !first_line_has("block"), "%s", said);
    EXPECT(dies_by(child_crashes("wild", true), SIGSEGV));
    EXPECT_SAY(first_line_has("hakmem: SIGSEGV: ") && !first_line_has("block"), "%s", said);
    EXPECT(dies_by(child_crashes("bus", true), SIGBUS));
    EXPECT_SAY(first_line_has("hakmem: SIGBUS: ") && !first_line_has("block"), "%s", said);
}

static void signals_that_were_sent_kill_as_before(void)
{
    EXPECT(dies_by(child_crashes("abort", true), SIGABRT));
    EXPECT_SAY(strcmp(said, "hakmem: SIGABRT raised by the program itself\n") == 0, "%s", said);
    EXPECT(dies_by(child_crashes("kill", true), SIGSEGV));
    EXPECT_SAY(strcmp(said, "hakmem: SIGSEGV raised by the program itself\n") == 0, "%s", said);
}

static void a_stack_overflow_is_reported(void)
{
    EXPECT(dies_by(child_crashes("overflow", true), SIGSEGV));
    EXPECT_SAY(first_line_has("hakmem: SIGSEGV: "), "%s", said);
}

static void other_threads_report_too(void)
{
    EXPECT(dies_by(child_crashes("thread", true), SIGSEGV));
    EXPECT_SAY(first_line_has(" 0x18 ") && first_line_has("NULL"), "%s", said);
}

static void a_handler_that_comes_later_replaces_ours(void)
{
    int status = child_crashes("later-handler", true);
    EXPECT_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 40 + SIGSEGV, "status %#x", (unsigned)status);
    EXPECT_SAY(strcmp(said, "own handler\n") == 0, "%s", said);
    status = child_crashes("ignore-abort", true);
    EXPECT_SAY(status == 0 && said[0] == 0, "status %#x, %s", (unsigned)status, said);
}

static void misuse_keeps_its_own_line_first(void)
{
    EXPECT(dies_by(child_crashes("misuse", true), SIGABRT));
    EXPECT_SAY(first_line_has("hakmem: free: ") && first_line_has("is inside a block"), "%s", said);
}

/* It was 4 KiB of text on the program's stack for signals, and what lay below was overwritten. */
static void a_small_stack_for_signals_is_enough(void)
{
    EXPECT(child_crashes("small-stack", true) == 0);
    EXPECT_SAY(strcmp(out, "0\n") == 0, "bytes overwritten: %s", out);
    EXPECT_SAY(first_line_has(" 0x10 ") && first_line_has("NULL"), "%s", said);
}

/* Who reports was known by the thread alone, and the child did not forget it: what met a fault in a report there reported again, for ever. */
static void a_childs_report_is_its_own(void)
{
    int status = child_crashes("fork", true);
    EXPECT_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %#x", (unsigned)status);
}

#if defined(__x86_64__)
/* The program went on, without its signal. */
static void what_the_kernel_finds_by_itself_kills(void)
{
    EXPECT(dies_by(child_crashes("no-frame", false), SIGSEGV));
    EXPECT(dies_by(child_crashes("no-frame", true), SIGSEGV));
    EXPECT_SAY(first_line_has("hakmem: SIGSEGV: "), "%s", said);
}
#endif

int main(int argc, char **argv)
{
    if (argc > 1)
        return crash(argv[1]);
    RUN(without_the_option_nothing_is_said);
    RUN(a_null_pointer_is_called_one);
    RUN(a_blocks_size_and_state_are_told);
    RUN(memory_of_others_is_not_called_ours);
    RUN(signals_that_were_sent_kill_as_before);
    RUN(a_stack_overflow_is_reported);
    RUN(other_threads_report_too);
    RUN(a_handler_that_comes_later_replaces_ours);
    RUN(misuse_keeps_its_own_line_first);
    RUN(a_small_stack_for_signals_is_enough);
    RUN(a_childs_report_is_its_own);
#if defined(__x86_64__)
    RUN(what_the_kernel_finds_by_itself_kills);
#endif
    return EXPECT_RESULT();
}
