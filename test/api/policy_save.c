/* policy_save.c - what is learnt can be read and written at any time: hak_learn_stats, hak_policy_save. */
#include "expect.h"

#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <sys/stat.h>

static void a_policy_is_written_on_demand(const char *folder)
{
    char path[256], text[4096];
    snprintf(path, sizeof path, "%s/app.policy", folder);
    EXPECT(hak_policy_save(path) == 0);
    int fd = open(path, O_RDONLY);
    EXPECT(fd >= 0);
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    text[count > 0 ? count : 0] = 0;
    EXPECT_SAY(strncmp(text, "hakmem-policy 1\nprogram ", 24) == 0, "%.60s", text);
    EXPECT(strstr(text, "\nstage learn\n") != NULL); /* nothing was decided yet */
    EXPECT(strstr(text, "\nknob purge_delay_ms ") != NULL && strstr(text, "\nend ") != NULL);
    struct stat found;
    EXPECT(stat(path, &found) == 0 && (found.st_mode & 0777) == 0600);
    EXPECT(hak_policy_save(path) == 0); /* over the first */
    unlink(path);
}

static void what_cannot_be_written_has_its_error(const char *folder)
{
    char path[256];
    errno = 77;
    EXPECT(hak_policy_save(NULL) == ENOENT); /* HAKMEM_POLICY names none */
    EXPECT(hak_policy_save(folder) == EINVAL);
    EXPECT(hak_policy_save("/dev/null") == EINVAL);
    snprintf(path, sizeof path, "%s/no/such", folder);
    EXPECT(hak_policy_save(path) == ENOENT);
    EXPECT(errno == 77);
}

static void the_state_is_readable_and_cut_like_every_struct(void)
{
    struct hak_learn_stats stats;
    hak_learn_stats(&stats, sizeof stats);
    EXPECT(stats.version == 1);
    EXPECT_SAY(stats.stage == HAK_LEARN_FROZEN || stats.stage == HAK_LEARN_OFF, "%u", stats.stage);
    memset(&stats, 0x5a, sizeof stats);
    hak_learn_stats(&stats, 4);
    EXPECT(stats.version == 1 && stats.pid == 0x5a5a5a5a);
    static union {
        struct hak_learn_stats stats;
        unsigned char byte[sizeof(struct hak_learn_stats) + 64];
    } longer; /* a later version's */
    memset(&longer, 0xa5, sizeof longer);
    hak_learn_stats(&longer.stats, sizeof longer);
    for (size_t i = sizeof stats; i < sizeof longer; i++)
        EXPECT_SAY(longer.byte[i] == 0, "byte %zu: %#x", i, longer.byte[i]);
}

int main(void)
{
    char folder[] = "/tmp/hakmem-policy-XXXXXX";
    free(malloc(100));
    REQUIRE(mkdtemp(folder) != NULL);
    a_policy_is_written_on_demand(folder);
    what_cannot_be_written_has_its_error(folder);
    the_state_is_readable_and_cut_like_every_struct();
    rmdir(folder);
    return EXPECT_RESULT();
}
