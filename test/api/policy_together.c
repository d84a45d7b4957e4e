/* policy_together.c - several runs of one program at once, as workers of a server are, with one policy file: what each wrote stays.
 *
 * Owns:   this program, executed again with HAKMEM_POLICY.
 */
#include "policy_file.h"

#include <hakmem/hakmem.h>

enum { WORKERS = 12 };
static const char site[] = "\nsite 00c0ffee00c0ffee 1a20 208 12 pool 1 874 2210\n"; /* of a module that nobody has */

/* In place of the line that begins so. */
static void line_becomes(const char *begins, const char *line)
{
    static char rest[sizeof text];
    char *at = strstr(text, begins), *end;
    REQUIRE(at != NULL && (end = strchr(at + 1, '\n')) != NULL);
    snprintf(rest, sizeof rest, "%s", end);
    snprintf(at, sizeof text - (size_t)(at - text), "%s%s", line, rest);
}

static void sum_make(void)
{
    char *end = strstr(text, "\nend ");
    REQUIRE(end != NULL);
    text_end(end + 1);
}

/* As a worker that has learnt: this run's file, but frozen, of 41 runs, with a site. */
static void others_write(const char *path)
{
    char mine[256];
    snprintf(mine, sizeof mine, "%s.mine", path);
    REQUIRE(hak_policy_save(mine) == 0);
    text_read(mine);
    unlink(mine);
    line_becomes("\nruns ", "\nruns 41");
    line_becomes("\nstage ", "\nstage frozen");
    line_becomes("\nend ", site);
    strcat(text, "end 0\n");
    char *twice = strstr(text, "\n\nend 0");
    if (twice)
        memmove(twice, twice + 1, strlen(twice));
    sum_make();
    text_write(path, text);
}

static unsigned runs_of(const char *path)
{
    text_read(path);
    const char *runs = strstr(text, "\nruns ");
    return runs ? (unsigned)atoi(runs + 6) : 0;
}

/* In the program that was executed again. */
static int others_wrote_meanwhile(const char *path)
{
    others_write(path);
    EXPECT(hak_policy_save(NULL) == 0);
    EXPECT_SAY(runs_of(path) == 42, "%s", text);
    EXPECT_SAY(strstr(text, "\nstage frozen\n") && strstr(text, site), "%s", text);
    EXPECT(hak_policy_save(NULL) == 0); /* the same run */
    EXPECT_SAY(runs_of(path) == 42 && strstr(text, site), "%s", text);
    others_write(path);
    char *name = strstr(text, "\nprogram ");
    REQUIRE(name != NULL);
    name[9] = name[9] == '0' ? '1' : '0'; /* another program's */
    sum_make();
    text_write(path, text);
    EXPECT(hak_policy_save(NULL) == 0); /* asked for, it is replaced */
    EXPECT_SAY(runs_of(path) == 42, "%s", text);
    return EXPECT_RESULT();
}

static pid_t again(const char *what, const char *policy)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("HAKMEM_POLICY", policy, 1);
        execl("/proc/self/exe", "policy_together", what, policy, (char *)NULL);
        _exit(1);
    }
    REQUIRE(child > 0);
    return child;
}

static void what_others_wrote_meanwhile_stays(const char *policy)
{
    for (int is_there = 0; is_there < 2; is_there++) {
        int status = child_wait(again("meanwhile", policy), 60);
        EXPECT_SAY(status == 0, "the file %s at its start: wait status %x", is_there ? "was there" : "was not there", (unsigned)status);
    }
    unlink(policy);
}

static void workers_that_end_at_once_all_count(const char *policy)
{
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = again("save", policy);
    for (int i = 0; i < WORKERS; i++) {
        int status = child_wait(workers[i], 60);
        EXPECT_SAY(status == 0, "wait status %x", (unsigned)status);
    }
    EXPECT_SAY(runs_of(policy) == WORKERS, "%s", text);
    unlink(policy);
}

int main(int count, char **words)
{
    char folder[200], policy[sizeof folder + 16];
    free(malloc(100));
    if (count == 3)
        return strcmp(words[1], "save") == 0 ? hak_policy_save(NULL) : others_wrote_meanwhile(words[2]);
    if (getenv("HAK_TEST_EMULATED")) /* qemu-user 7.2 cannot exec a foreign program again by itself */
        return EXPECT_SKIPPED;
    TEMPORARY(folder, "hakmem-together-XXXXXX");
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(policy, sizeof policy, "%s/app.policy", folder);
    what_others_wrote_meanwhile_stays(policy);
    workers_that_end_at_once_all_count(policy);
    EXPECT(rmdir(folder) == 0); /* nothing is left behind */
    return EXPECT_RESULT();
}
