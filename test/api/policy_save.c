/* policy_save.c - what is learnt can be read and written at any time: hak_learn_stats, hak_policy_save. */
#include "policy_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <hakmem/hakmem.h>
#include <link.h>
#include <sys/stat.h>

static void a_policy_is_written_on_demand(const char *folder)
{
    char path[256];
    snprintf(path, sizeof path, "%s/app.policy", folder);
    EXPECT(hak_policy_save(path) == 0);
    text_read(path);
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

/* This program again, `what` with this policy file; it writes another one. */
static void run_again(const char *what, const char *policy, const char *written)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, 2); /* it says that the file is ignored */
        setenv("HAKMEM_POLICY", policy, 1);
        execl("/proc/self/exe", "policy_save", what, written, (char *)NULL);
        _exit(1);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %x", what, (unsigned)status);
}

static void of_a_refused_file_nothing_is_written(const char *folder)
{
    static char refused[sizeof text + 64];
    char path[256], written[256];
    snprintf(path, sizeof path, "%s/refused.policy", folder);
    snprintf(written, sizeof written, "%s/written.policy", folder);
    EXPECT(hak_policy_save(path) == 0);
    text_read(path);
    char *end = strstr(text, "\nend ");
    REQUIRE(end != NULL);
    snprintf(refused, sizeof refused, "%.*s\nspare 3 5%s", (int)(end - text), text, end); /* the sum is of what was there before */
    text_write(path, refused);
    run_again("save", path, written);
    text_read(written);
    EXPECT_SAY(strstr(text, "\nspare ") == NULL, "%s", text);
    unlink(path);
    unlink(written);
}

/* The build-id's first 8 bytes, of a library whose name has `context`'s; by the loader's list. */
struct named {
    const char *file;
    uint64_t id;
};
static int module_look(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct named *named = (struct named *)context;
    (void)bytes;
    if (!strstr(info->dlpi_name, named->file))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const char *at = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), *end = at + info->dlpi_phdr[i].p_memsz;
        while (info->dlpi_phdr[i].p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) < end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const unsigned char *id = (const unsigned char *)(note + 1) + 4;
            for (int digit = 0; note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && digit < 8; digit++)
                named->id = named->id << 8 | id[digit];
            if (named->id)
                return 1;
            at += sizeof *note + ((note->n_namesz + 3) & ~3u) + ((note->n_descsz + 3) & ~3u);
        }
    }
    return 1;
}

static void a_site_of_a_module_that_is_loaded_later_stays(const char *folder)
{
    static const char *const files[] = { "libBrokenLocale.so.1", "libanl.so.1", "libutil.so.1", "libnsl.so.1" };
    struct named named = { NULL, 0 };
    for (unsigned i = 0; i < sizeof files / sizeof *files && !named.id; i++) {
        void *library = dlopen(files[i], RTLD_NOW | RTLD_NOLOAD) ? NULL : dlopen(files[i], RTLD_NOW);
        named.file = files[i];
        if (library)
            dl_iterate_phdr(module_look, &named);
    }
    if (!named.id) {
        puts("no library that could be loaded later");
        return;
    }
    char path[256], written[256], site[128], *end;
    snprintf(path, sizeof path, "%s/sites.policy", folder);
    snprintf(written, sizeof written, "%s/written.policy", folder);
    EXPECT(hak_policy_save(path) == 0);
    text_read(path);
    REQUIRE((end = strstr(text, "\nend ")) != NULL);
    snprintf(site, sizeof site, "\nsite %016llx 1a20 208 12 pool 1 874 2210\n", (unsigned long long)named.id);
    strcpy(end, site);
    text_end(text + strlen(text));
    text_write(path, text);
    run_again("save", path, written);
    text_read(written);
    EXPECT_SAY(strstr(text, site) != NULL, "not loaded: %s", text);
    run_again(named.file, path, written);
    text_read(written);
    EXPECT_SAY(strstr(text, site) != NULL, "loaded later: %s", text);
    unlink(path);
    unlink(written);
}

int main(int count, char **words)
{
    char folder[200];
    free(malloc(100));
    if (count == 3 && strcmp(words[1], "save") != 0)
        REQUIRE(dlopen(words[1], RTLD_NOW) != NULL);
    if (count == 3)
        return hak_policy_save(words[2]); /* in its first 20 ms, when it tells nothing of free memory itself */
    TEMPORARY(folder, "hakmem-policy-XXXXXX");
    REQUIRE(mkdtemp(folder) != NULL);
    a_policy_is_written_on_demand(folder);
    what_cannot_be_written_has_its_error(folder);
    if (!getenv("HAK_TEST_EMULATED")) { /* qemu-user 7.2 cannot exec a foreign program again by itself */
        of_a_refused_file_nothing_is_written(folder);
        a_site_of_a_module_that_is_loaded_later_stays(folder);
    }
    the_state_is_readable_and_cut_like_every_struct();
    rmdir(folder);
    return EXPECT_RESULT();
}
