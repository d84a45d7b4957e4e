/* statistics_prometheus.c - hak_stats_prometheus is strict exposition format, with the numbers of hak_stats_get, cut as snprintf cuts.
 *
 * Owns:   a small strict reader of Prometheus's text format 0.0.4: each metric's HELP, TYPE and samples stand together, each name once.
 */
#include "expect.h"

#include <ctype.h>
#include <hakmem/hakmem.h>

enum { METRICS_MAX = 256, NAME_BYTES = 64 };
static char text[262144];
static char names[METRICS_MAX][NAME_BYTES];
static size_t name_count, sample_count;

static size_t name_length(const char *at)
{
    size_t length = 0;
    if (!isalpha((unsigned char)at[0]) && at[0] != '_' && at[0] != ':')
        return 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == ':')
        length++;
    return length;
}

static bool name_is(const char *at, const char *name)
{
    size_t length = name_length(at);
    return length > 0 && strlen(name) == length && strncmp(at, name, length) == 0;
}

/* {name="value",..}; what follows it, or NULL. */
static const char *labels(const char *at)
{
    if (*at++ != '{')
        return NULL;
    for (;;) {
        size_t length = name_length(at);
        if (length == 0 || at[length] != '=' || at[length + 1] != '"')
            return NULL;
        for (at += length + 2; *at != '"'; at++) {
            if (*at == '\n' || *at == 0)
                return NULL;
            if (*at == '\\' && (*++at == 0 || strchr("\\\"n", *at) == NULL))
                return NULL;
        }
        if (*++at == '}')
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

static bool sample(const char *at, const char *name)
{
    if (!name_is(at, name))
        return false;
    at += strlen(name);
    if (*at == '{' && (at = labels(at)) == NULL)
        return false;
    if (*at++ != ' ' || !isdigit((unsigned char)*at))
        return false;
    while (isdigit((unsigned char)*at))
        at++;
    return *at == '\n';
}

/* Of the first line that is not as it should be; NULL: all are. */
static const char *wrong_line(const char *at)
{
    const char *name = "";
    bool has_type = true, has_sample = true;
    name_count = sample_count = 0;
    for (; *at; at = strchr(at, '\n') + 1) {
        if (strchr(at, '\n') == NULL)
            return at;
        if (strncmp(at, "# HELP ", 7) == 0) {
            size_t length = name_length(at + 7);
            if (!has_type || length == 0 || length >= NAME_BYTES || at[7 + length] != ' ' || name_count == METRICS_MAX)
                return at;
            for (size_t i = 0; i < name_count; i++)
                if (name_is(at + 7, names[i]))
                    return at;
            memcpy(names[name_count], at + 7, length);
            names[name_count][length] = 0;
            name = names[name_count++];
            has_type = has_sample = false;
        } else if (strncmp(at, "# TYPE ", 7) == 0) {
            if (has_type || !name_is(at + 7, name))
                return at;
            const char *kind = at + 7 + strlen(name);
            bool is_counter = strncmp(kind, " counter\n", 9) == 0, ends_total = strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0;
            if ((!is_counter && strncmp(kind, " gauge\n", 7) != 0) || is_counter != ends_total)
                return at;
            has_type = true;
        } else {
            if (!has_type || !sample(at, name))
                return at;
            has_sample = true;
            sample_count++;
        }
    }
    return has_type && has_sample ? NULL : at;
}

static void the_reader_itself_is_strict(void)
{
    EXPECT(wrong_line("# HELP a of it\n# TYPE a gauge\na 1\na{b=\"c\\\"\",d=\"\"} 2\n") == NULL && sample_count == 2);
    static const char *const wrong[] = {
        "a 1\n", "# HELP a x\n# TYPE a gauge\na 1", "# HELP a x\n# TYPE b gauge\na 1\n", "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a x\n# TYPE a gauge\na{b=c} 1\n", "# HELP a x\n# TYPE a gauge\na -\n", "# HELP a x\n# TYPE a gauge\nb 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\n# HELP a x\n# TYPE a gauge\na 1\n", "# HELP a x\n# TYPE a gauge\na{b=\"\n\"} 1\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT_SAY(wrong_line(wrong[i]) != NULL, "%zu", i);
}

/* UINT64_MAX: there is none. */
static unsigned long long number_of(const char *line)
{
    const char *at = text;
    size_t length = strlen(line);
    while (at && strncmp(at, line, length) != 0)
        at = (at = strchr(at, '\n')) != NULL ? at + 1 : NULL;
    return at && at[length] == ' ' ? strtoull(at + length + 1, NULL, 10) : UINT64_MAX;
}

static void the_text_is_strict_and_has_the_numbers_of_stats_get(void)
{
    static struct hak_stats stats;
    static void *blocks[30000];
    for (int i = 0; i < 30000; i++)
        blocks[i] = malloc((size_t)(i % 300) * (i % 100 ? 7 : 500) + 1);
    for (int i = 0; i < 30000; i++)
        memset(blocks[i], 1, 1);
    size_t length = hak_stats_prometheus(text, sizeof text);
    hak_stats_get(&stats, sizeof stats);
    REQUIRE(length > 1000 && length < sizeof text && strlen(text) == length);
    const char *wrong = wrong_line(text);
    EXPECT_SAY(wrong == NULL, "%.60s", wrong);
    EXPECT_SAY(name_count > 50 && sample_count > name_count + 100, "%zu, %zu", name_count, sample_count);
    uint64_t slab_bytes = 0;
    for (uint32_t i = 0; i < stats.class_count; i++) {
        const struct hak_class_stats *one = &stats.class_stats[i];
        char line[96];
        snprintf(line, sizeof line, "hakmem_class_live_blocks{class_bytes=\"%u\"}", one->block_bytes);
        EXPECT_SAY(number_of(line) == (one->slab_count ? one->live_count : UINT64_MAX), "%s %llu", line, number_of(line));
        snprintf(line, sizeof line, "hakmem_class_resident_bytes{class_bytes=\"%u\"}", one->block_bytes);
        unsigned long long resident = number_of(line);
        if (!one->slab_count)
            continue;
        slab_bytes += resident;
        snprintf(line, sizeof line, "hakmem_class_sparse_bytes{class_bytes=\"%u\"}", one->block_bytes);
        EXPECT_SAY(number_of(line) <= resident, "%s %llu of %llu", line, number_of(line), resident);
        if (resident_is_known()) /* each block's first byte was touched */
            EXPECT_SAY(resident >= (one->block_bytes < 4096 ? one->live_count * one->block_bytes : 4096 * one->live_count) * 9 / 10, "%s %llu", line, resident);
    }
    EXPECT(number_of("hakmem_slab_resident_bytes") == slab_bytes);
    EXPECT(number_of("hakmem_small_live_bytes") == stats.live_bytes - stats.large_bytes);
    EXPECT(number_of("hakmem_large_live_bytes") >= stats.large_bytes && number_of("hakmem_large_live_blocks") >= stats.large_count);
    EXPECT(number_of("hakmem_returned_bytes_total") == stats.returned_bytes && number_of("hakmem_free_bytes") == stats.free_bytes);
    EXPECT(number_of("hakmem_heap_born_total") >= 1 && number_of("hakmem_recording") == 0 && number_of("hakmem_guarded_blocks") == 0);
    if (resident_is_known())
        EXPECT(number_of("hakmem_resident_peak_bytes") >= number_of("hakmem_resident_bytes") * 9 / 10 && number_of("hakmem_resident_bytes") > slab_bytes / 2);
    for (int i = 0; i < 30000; i++)
        if (i % 97)
            free(blocks[i]);
    hak_stats_prometheus(text, sizeof text);
    if (resident_is_known())
        EXPECT_SAY(number_of("hakmem_sparse_bytes") > 100000, "%llu", number_of("hakmem_sparse_bytes"));
    for (int i = 0; i < 30000; i += 97)
        free(blocks[i]);
}

static void a_short_buffer_is_filled_and_ended(void)
{
    size_t length = hak_stats_prometheus(NULL, 0);
    static const size_t cuts[] = {1, 2, 10, 100, 500};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        memset(text, 'x', 1000);
        size_t said = hak_stats_prometheus(text, cuts[i]);
        EXPECT_SAY(said + 64 >= length && said <= length + 64, "%zu and %zu", said, length);
        EXPECT_SAY(strlen(text) == cuts[i] - 1 && text[cuts[i]] == 'x', "%zu in %zu", strlen(text), cuts[i]);
        EXPECT(cuts[i] < 8 || strncmp(text, "# HELP ", 7) == 0);
    }
}

static void it_never_allocates(void)
{
    static struct hak_stats before, after;
    hak_stats_get(&before, sizeof before);
    for (int i = 0; i < 100; i++)
        hak_stats_prometheus(text, sizeof text);
    hak_stats_get(&after, sizeof after);
    for (uint32_t i = 0; i < after.class_count; i++)
        EXPECT(after.class_stats[i].alloc_count == before.class_stats[i].alloc_count);
}

int main(void)
{
    RUN(the_reader_itself_is_strict);
    RUN(the_text_is_strict_and_has_the_numbers_of_stats_get);
    RUN(a_short_buffer_is_filled_and_ended);
    RUN(it_never_allocates);
    return EXPECT_RESULT();
}
