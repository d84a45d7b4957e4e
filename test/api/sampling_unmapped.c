/* sampling_unmapped.c - code that was made at run time is gone, or closed, with its frames still on the stack: a sample's stack ends there.
 *
 * Owns:   itself, started again, a sample per 1,000 bytes or so. mono unmaps its code at the end, and libgcc's unwinder, which the library had, reads code
 *         that no object holds.
 *
 * ctest: native
 */
#include "expect.h"

#include "../../src/watch/published.h"

#include <sys/mman.h>
#include <sys/wait.h>

extern struct hak_published hakmem_published __attribute__((weak));

enum { PAGE = 65536 };

#if defined(__x86_64__)
static const unsigned char CODE[] = { 0x48, 0x83, 0xec, 0x08,   /* sub $8, %rsp */
                                      0xff, 0xd7,               /* call *%rdi */
                                      0x48, 0x83, 0xc4, 0x08,   /* add $8, %rsp */
                                      0xc3 };                   /* ret */
#elif defined(__aarch64__)
static const uint32_t CODE[] = { 0xa9bf7bfd,   /* stp x29, x30, [sp, #-16]! */
                                 0xd63f0000,   /* blr x0 */
                                 0xa8c17bfd,   /* ldp x29, x30, [sp], #16 */
                                 0xd65f03c0 }; /* ret */
#endif

static unsigned char *code;
static int is_closed_only;

static uint64_t taken(void) { return hakmem_published.samples + hakmem_published.guards.used; }

static void called_by_it(void)
{
    static void *blocks[500];
    uint64_t before = taken();
    REQUIRE(is_closed_only ? mprotect(code, PAGE, PROT_NONE) == 0 : munmap(code, PAGE) == 0);
    for (int i = 0; i < 500; i++) {
        blocks[i] = malloc(2000 + (size_t)i % 7);
        REQUIRE(blocks[i] != NULL);
    }
    for (int i = 0; i < 500; i++)
        free(blocks[i]);
    EXPECT_SAY(taken() - before > 50, "%llu samples or guarded blocks", (unsigned long long)(taken() - before));
    exit(expect_failure_count != 0);
}

static void run_time_code_calls(void)
{
    code = (unsigned char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(code != (unsigned char *)MAP_FAILED);
    memcpy(code, CODE, sizeof CODE);
    __builtin___clear_cache((char *)code, (char *)code + sizeof CODE);
    ((void (*)(void (*)(void)))(uintptr_t)code)(called_by_it);
}

int main(int count, char **words)
{
    static const char *const OPTIONS[] = { "HAKMEM_RECORD=/dev/null", "HAKMEM_GUARD=1" };
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    if (count == 2) {
        is_closed_only = words[1][0] == '1';
        RUN(run_time_code_calls);
        return 1;
    }
    setenv("HAKMEM_SAMPLE_BYTES", "1024", 1);
    setenv("HAKMEM_SAMPLE_MOST", "0", 1);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            putenv((char *)(uintptr_t)OPTIONS[i / 2]);
            execl("/proc/self/exe", words[0], i % 2 ? "1" : "0", (char *)NULL);
            _exit(127);
        }
        int status = 0;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_SAY(status == 0, "%s, %s: status %#x", OPTIONS[i / 2], i % 2 ? "closed" : "unmapped", status);
    }
    return expect_failure_count != 0;
}
