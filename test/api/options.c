/* options.c - options at run time and in the environment: values, ranges, and one clear line for what is wrong.
 *
 * Owns:   children, each with an environment of its own; they exec this program.
 *
 * ctest: native
 */
#include "expect.h"

#include <ctype.h>
#include <hakmem/hakmem.h>

static const char *option(const char *name)
{
    static char text[64];
    size_t length = hak_option_get(name, text, sizeof text);
    if (length == 0)
        return "(none)";
    EXPECT_SAY(strlen(text) == length, "%s is \"%s\", length %zu", name, text, length);
    return text;
}

static char delay_default[64], word_default[64];

static void defaults_are_in_their_ranges(void)
{
    snprintf(delay_default, sizeof delay_default, "%s", option("purge_delay_ms"));
    snprintf(word_default, sizeof word_default, "%s", option("word_bytes"));
    long delay = strtol(delay_default, NULL, 10), word = strtol(word_default, NULL, 10);
    EXPECT_SAY(delay >= 0 && delay <= 600000 && isdigit((unsigned char)delay_default[0]), "%s", delay_default);
    EXPECT_SAY(word >= 1024 && word <= 65536, "%s", word_default);
    EXPECT_SAY(strcmp(option("stats"), "0") == 0, "%s", option("stats"));
    EXPECT_SAY(strcmp(option("background"), "0") == 0, "%s", option("background"));
}

static void names_are_read_in_either_case_with_or_without_prefix(void)
{
    EXPECT(hak_option_set("purge_delay_ms", "900") == 0);
    EXPECT(strcmp(option("PURGE_DELAY_MS"), "900") == 0);
    EXPECT(strcmp(option("HAKMEM_PURGE_DELAY_MS"), "900") == 0);
    EXPECT(strcmp(option("hakmem_purge_delay_ms"), "900") == 0);
    EXPECT(hak_option_set("HAKMEM_Purge_Delay_Ms", "0") == 0);
    EXPECT(strcmp(option("purge_delay_ms"), "0") == 0);
    EXPECT(hak_option_set("purge_delay_ms", "600000") == 0);
    EXPECT(strcmp(option("purge_delay_ms"), "600000") == 0);
    EXPECT(hak_option_set("purge_delay_ms", delay_default) == 0);
}

static void errors_say_what_is_wrong_and_change_nothing(void)
{
    EXPECT(hak_option_set("no_such_option", "1") == ENOENT);
    EXPECT(hak_option_set("", "1") == ENOENT);
    EXPECT(hak_option_set("purge_delay", "1") == ENOENT);
    EXPECT(hak_option_set("purge_delay_ms_", "1") == ENOENT);
    EXPECT(hak_option_get("no_such_option", NULL, 0) == 0);
    static const char *const not_numbers[] = {"", " ", "banana", "12x", "x12", "0x", "1.5", "--3", "1 2"};
    for (size_t i = 0; i < sizeof not_numbers / sizeof *not_numbers; i++)
        EXPECT_SAY(hak_option_set("purge_delay_ms", not_numbers[i]) == EINVAL, "\"%s\" gave %d", not_numbers[i],
                   hak_option_set("purge_delay_ms", not_numbers[i]));
    EXPECT(hak_option_set("purge_delay_ms", "600001") == ERANGE);
    EXPECT(hak_option_set("word_bytes", "1023") == ERANGE);
    EXPECT(hak_option_set("word_bytes", "262145") == ERANGE);
    int huge = hak_option_set("purge_delay_ms", "99999999999999999999999999");
    EXPECT_SAY(huge == ERANGE || huge == EINVAL, "%d", huge);
    int negative = hak_option_set("purge_delay_ms", "-1");
    EXPECT_SAY(negative == ERANGE || negative == EINVAL, "%d", negative);
    EXPECT(hak_option_set("region_gb", "2") == EPERM);
    EXPECT(hak_option_set("stats", "1") == EPERM);
    EXPECT(strcmp(option("purge_delay_ms"), delay_default) == 0);
    EXPECT(strcmp(option("word_bytes"), word_default) == 0);
    EXPECT(strcmp(option("stats"), "0") == 0);
}

static void get_cuts_as_snprintf_cuts(void)
{
    char text[8] = "xxxxxxx";
    EXPECT(hak_option_set("word_bytes", "4096") == 0);
    EXPECT(hak_option_get("word_bytes", text, 3) == 4);
    EXPECT(strcmp(text, "40") == 0 && text[3] == 'x');
    EXPECT(hak_option_get("word_bytes", NULL, 0) == 4);
    EXPECT(hak_option_set("word_bytes", word_default) == 0);
}

static void changed_options_are_lived_with(void)
{
    static const char *const values[][2] = {{"word_bytes", "1024"}, {"word_bytes", "262144"}, {"relist_share", "1"},
                                            {"relist_share", "64"}, {"free_max_mb", "0"}, {"free_share", "1024"},
                                            {"free_share", "1"}, {"purge_delay_ms", "0"}};
    static void *blocks[3000];
    struct random_state random = {7};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        EXPECT_SAY(hak_option_set(values[v][0], values[v][1]) == 0, "%s=%s", values[v][0], values[v][1]);
        for (int i = 0; i < 30000; i++) {
            size_t k = random_below(&random, 3000);
            free(blocks[k]);
            blocks[k] = malloc(random_below(&random, i % 50 == 0 ? 100000 : 1500));
        }
    }
    for (int i = 0; i < 3000; i++)
        free(blocks[i]);
}

/* --- the environment ---------------------------------------------------------------------------- */

/* Runs this program with one variable and the argument `show NAME`; gives stdout and stderr. */
static void child_run(const char *variable, const char *name, char *out, char *err, size_t bytes)
{
    int out_ends[2], err_ends[2];
    REQUIRE(pipe(out_ends) == 0 && pipe(err_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(out_ends[1], 1);
        dup2(err_ends[1], 2);
        char library_path[512], preload[512];
        snprintf(library_path, sizeof library_path, "LD_LIBRARY_PATH=%s", getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "");
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "");
        char *environment[] = {(char *)(uintptr_t)variable, library_path, preload, NULL};
        execle("/proc/self/exe", "options", "show", name, (char *)NULL, environment);
        _exit(126);
    }
    close(out_ends[1]);
    close(err_ends[1]);
    ssize_t out_bytes = read(out_ends[0], out, bytes - 1), err_bytes = 0, part;
    out[out_bytes < 0 ? 0 : out_bytes] = 0;
    while ((part = read(err_ends[0], err + err_bytes, bytes - 1 - (size_t)err_bytes)) > 0)
        err_bytes += part;
    err[err_bytes] = 0;
    close(out_ends[0]);
    close(err_ends[0]);
    int status = child_wait(child, 20);
    EXPECT_SAY(status == 0, "%s: status %#x, %s", variable, (unsigned)status, err);
}

static void the_environment_sets_options(void)
{
    static const struct {
        const char *variable, *name, *value, *error;
    } cases[] = {
        {"HAKMEM_PURGE_DELAY_MS=123", "purge_delay_ms", "123", ""},
        {"HAKMEM_WORD_BYTES=1024", "word_bytes", "1024", ""},
        {"HAKMEM_FREE_SHARE=1024", "free_share", "1024", ""},
        {"HAKMEM_STATZ=1", "stats", "0", "hakmem: unknown option HAKMEM_STATZ; did you mean HAKMEM_STATS?\n"},
        {"HAKMEM_STATS=banana", "stats", "0", "hakmem: HAKMEM_STATS=banana is not a number from 0 to 1; the default 0 is used\n"},
        {"HAKMEM_STATS=2", "stats", "0", "hakmem: HAKMEM_STATS=2 is not a number from 0 to 1; the default 0 is used\n"},
        {"HAKMEM_WORD_BYTES=-5", "word_bytes", word_default,
         "hakmem: HAKMEM_WORD_BYTES=-5 is not a number from 1024 to 262144; the default %s is used\n"},
        {"HAKMEM_WORD_BYTES=", "word_bytes", word_default,
         "hakmem: HAKMEM_WORD_BYTES= is not a number from 1024 to 262144; the default %s is used\n"},
        {"HAKMEM_WORD_BYTES=99999999999999999999999", "word_bytes", word_default,
         "hakmem: HAKMEM_WORD_BYTES=99999999999999999999999 is not a number from 1024 to 262144; the default %s is used\n"},
        {"HAKMEM_PURGE_DELAY=7", "purge_delay_ms", delay_default,
         "hakmem: unknown option HAKMEM_PURGE_DELAY; did you mean HAKMEM_PURGE_DELAY_MS?\n"},
        {"NOT_HAKMEM_STATS=banana", "stats", "0", ""},
    };
    char out[4096], err[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        child_run(cases[i].variable, cases[i].name, out, err, sizeof out);
        EXPECT_SAY(strcmp(out, cases[i].value) == 0, "%s gave %s=%s", cases[i].variable, cases[i].name, out);
        char error[512]; /* where the text has a %s, it is the default of word_bytes */
        snprintf(error, sizeof error, cases[i].error, word_default);
        EXPECT_SAY(strcmp(err, error) == 0, "%s said: %s", cases[i].variable, err);
    }
}

static void very_long_names_and_values_are_no_harm(void)
{
    static char variable[20000], out[65536], err[65536];
    memset(variable, 'A', sizeof variable - 1);
    memcpy(variable, "HAKMEM_", 7);
    child_run(variable, "stats", out, err, sizeof err);
    memcpy(variable, "HAKMEM_STATS=", 13);
    child_run(variable, "stats", out, err, sizeof err);
    EXPECT(strncmp(err, "hakmem: ", 8) == 0);
    memcpy(variable, "HAKMEM_=AAAAA", 13);
    child_run(variable, "stats", out, err, sizeof err);
}

/* Statistics at exit, and a report as a file. */
static void statistics_at_exit(void)
{
    static char out[65536], err[65536];
    child_run("HAKMEM_STATS=1", "stats", out, err, sizeof err);
    EXPECT(strcmp(out, "1") == 0);
    EXPECT_SAY(strlen(err) > 100 && strpbrk(err, "0123456789") != NULL, "%s", err);
    char path[200], variable[sizeof path + 16];
    TEMPORARY(path, "hakmem-options-XXXXXX");
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    snprintf(variable, sizeof variable, "HAKMEM_REPORT=%s", path);
    child_run(variable, "report", out, err, sizeof err);
    EXPECT_SAY(err[0] == 0, "%s", err);
    EXPECT(strcmp(out, path) == 0);
    close(file);
    FILE *report = fopen(path, "r"); /* by name: the report replaces the file */
    size_t bytes = report ? fread(out, 1, sizeof out - 1, report) : 0;
    out[bytes] = 0;
    EXPECT_SAY(out[0] == '{' && strstr(out, "\"classes\"") != NULL && strstr(out, "\"live_bytes\"") != NULL, "%.60s", out);
    if (report)
        fclose(report);
    unlink(path);
    child_run("HAKMEM_REPORT=/nonexistent/directory/report", "stats", out, err, sizeof err);
    const char *end = strchr(err, '\n');
    EXPECT_SAY(strncmp(err, "hakmem: ", 8) == 0 && end != NULL && end[1] == 0, "%s", err);
}

int main(int argument_count, char **arguments)
{
    if (argument_count == 3 && strcmp(arguments[1], "show") == 0) {
        printf("%s", option(arguments[2]));
        return EXPECT_RESULT();
    }
    RUN(defaults_are_in_their_ranges);
    RUN(names_are_read_in_either_case_with_or_without_prefix);
    RUN(errors_say_what_is_wrong_and_change_nothing);
    RUN(get_cuts_as_snprintf_cuts);
    RUN(the_environment_sets_options);
    RUN(very_long_names_and_values_are_no_harm);
    RUN(statistics_at_exit);
    RUN(changed_options_are_lived_with);
    return EXPECT_RESULT();
}
