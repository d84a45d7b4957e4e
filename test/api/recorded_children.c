/* recorded_children.c - a recording that another process asked for is of that process alone; HAKMEM_RECORD's goes on in children.
 *
 * Owns:   the control word of this very process, which it writes as another one would.
 *
 * ctest: native
 */
#include "recorded.h"

#include <sys/syscall.h>

enum { RATE = 1024 };

static void visits_for(double seconds)
{
    for (double until = clock_seconds() + seconds; clock_seconds() < until;)
        recorded_visits();
}

static int asked(uint32_t command) { return recorded_asked(command, RATE); }

static uint64_t samples_of(double seconds)
{
    uint64_t before = hakmem_published.samples;
    visits_for(seconds);
    return hakmem_published.samples - before;
}

static pid_t forked(bool is_raw)
{
    return is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
}

static void ends_well(pid_t child, const char *what)
{
    int status;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %x", what, (unsigned)status);
}

/* Of a recording: it is off, nothing is sampled, and it can be had anew. */
static int is_unrecorded(void)
{
    visits_for(0.1);
    if (hakmem_published.is_on)
        return 1;
    if (samples_of(0.1) != 0)
        return 2;
    if (asked(HAK_CONTROL_START) != 0 || !hakmem_published.is_on)
        return 3;
    return samples_of(0.1) > 0 ? 0 : 4;
}

static void a_child_is_not_recorded_with_its_parent(void)
{
    EXPECT(asked(HAK_CONTROL_START) == 0 && hakmem_published.is_on);
    for (int raw = 0; raw < 2; raw++) {
        pid_t child = forked(raw);
        if (child == 0)
            _exit(is_unrecorded());
        ends_well(child, raw ? "clone" : "fork");
        EXPECT(hakmem_published.is_on && samples_of(0.1) > 0);
    }
    EXPECT(asked(HAK_CONTROL_STOP) == 0 && !hakmem_published.is_on);
}

static void a_request_that_waits_is_the_parents(void)
{
    for (int raw = 0; raw < 2; raw++) {
        visits_for(0.1);
        uint32_t request = recorded_request(HAK_CONTROL_START, RATE);
        pid_t child = forked(raw);
        if (child == 0) {
            visits_for(0.1);
            if (hakmem_published.control.seen != request || hakmem_published.control.result != -ECANCELED)
                _exit(5);
            _exit(is_unrecorded());
        }
        ends_well(child, raw ? "clone" : "fork");
        visits_for(0.1);
        EXPECT(hakmem_published.control.seen == request && hakmem_published.control.result == 0 && hakmem_published.is_on);
        EXPECT(asked(HAK_CONTROL_STOP) == 0);
    }
}

static void what_the_environment_began_goes_on(void)
{
    for (int raw = 0; raw < 2; raw++) {
        pid_t child = forked(raw);
        if (child == 0)
            _exit(hakmem_published.is_on && samples_of(0.1) > 0 ? 0 : 1);
        ends_well(child, raw ? "clone" : "fork");
    }
}

/* Two children do the same: each would draw what the other draws, block by block, and both together would say no more than one. */
enum { DRAWN = 4000, DRAWN_BYTES = 200 };
static void draws(unsigned char *is_sample)
{
    static void *blocks[DRAWN];
    for (int i = 0; i < DRAWN; i++)
        blocks[i] = malloc(DRAWN_BYTES);
    for (uint64_t row_index = 0; row_index < hakmem_published.live.used; row_index++) {
        const struct hak_live_row *row = recorded_live(row_index);
        for (int i = 0; i < DRAWN && row->state == 1; i++)
            is_sample[i] |= row->block == (uintptr_t)blocks[i];
    }
}

static void children_draw_samples_of_their_own(void)
{
    unsigned char *drawn = (unsigned char *)mmap(NULL, 2 * DRAWN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(drawn != (unsigned char *)MAP_FAILED);
    for (int k = 0; k < 2; k++) {
        pid_t child = fork();
        if (child == 0) {
            draws(drawn + k * DRAWN);
            _exit(0);
        }
        ends_well(child, "one of two children");
    }
    int each[2] = { 0, 0 }, both = 0;
    for (int i = 0; i < DRAWN; i++) {
        each[0] += drawn[i];
        each[1] += drawn[DRAWN + i];
        both += drawn[i] & drawn[DRAWN + i];
    }
    EXPECT_SAY(each[0] > 100 && each[1] > 100 && both < each[0] * 3 / 4, "%d, %d samples, of which %d are the same blocks", each[0], each[1], both);
    munmap(drawn, 2 * DRAWN);
}

int main(int count, char **words)
{
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    visits_for(0.1);
    if (count > 1) {
        RUN(what_the_environment_began_goes_on);
        RUN(children_draw_samples_of_their_own);
        return EXPECT_RESULT();
    }
    if (hakmem_published.is_on)
        return EXPECT_SKIPPED; /* this run is recorded itself */
    RUN(a_child_is_not_recorded_with_its_parent);
    RUN(a_request_that_waits_is_the_parents);
    pid_t child = fork();
    if (child == 0) {
        setenv("HAKMEM_RECORD", "/dev/null", 1);
        setenv("HAKMEM_SAMPLE_BYTES", "1024", 1);
        setenv("HAKMEM_SAMPLE_MOST", "0", 1);
        execl("/proc/self/exe", words[0], "recorded", (char *)NULL);
        _exit(1);
    }
    ends_well(child, "a child that HAKMEM_RECORD is set for");
    return EXPECT_RESULT();
}
