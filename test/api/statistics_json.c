/* statistics_json.c - hak_stats_json is one strict JSON object with the promised keys, cut as snprintf cuts.
 *
 * Owns:   a small strict JSON reader (RFC 8259: no trailing commas, no leading zeros).
 */
#include "expect.h"

#include <ctype.h>
#include <hakmem/hakmem.h>

static const char *json_at;

static void json_space(void)
{
    while (*json_at == ' ' || *json_at == '\n' || *json_at == '\t' || *json_at == '\r')
        json_at++;
}

static bool json_string(void)
{
    if (*json_at++ != '"')
        return false;
    for (; *json_at != '"'; json_at++) {
        if ((unsigned char)*json_at < 0x20)
            return false;
        if (*json_at == '\\' && strchr("\"\\/bfnrtu", *++json_at) == NULL)
            return false;
    }
    json_at++;
    return true;
}

static bool json_number(void)
{
    if (*json_at == '-')
        json_at++;
    if (!isdigit((unsigned char)*json_at) || (*json_at == '0' && isdigit((unsigned char)json_at[1])))
        return false;
    while (isdigit((unsigned char)*json_at))
        json_at++;
    if (*json_at == '.') {
        if (!isdigit((unsigned char)*++json_at))
            return false;
        while (isdigit((unsigned char)*json_at))
            json_at++;
    }
    return true;
}

static bool json_value(void);

static bool json_list(char close, bool with_keys)
{
    json_at++;
    json_space();
    if (*json_at == close)
        return json_at++, true;
    for (;;) {
        json_space();
        if (with_keys) {
            if (!json_string())
                return false;
            json_space();
            if (*json_at++ != ':')
                return false;
        }
        if (!json_value())
            return false;
        json_space();
        if (*json_at == close)
            return json_at++, true;
        if (*json_at++ != ',')
            return false;
    }
}

static bool json_value(void)
{
    json_space();
    if (*json_at == '{')
        return json_list('}', true);
    if (*json_at == '[')
        return json_list(']', false);
    if (*json_at == '"')
        return json_string();
    if (strncmp(json_at, "true", 4) == 0 || strncmp(json_at, "null", 4) == 0)
        return json_at += 4, true;
    if (strncmp(json_at, "false", 5) == 0)
        return json_at += 5, true;
    return json_number();
}

static bool json_is_object(const char *text)
{
    json_at = text;
    if (*json_at != '{' || !json_value())
        return false;
    json_space();
    return *json_at == 0;
}

static void the_reader_itself_is_strict(void)
{
    EXPECT(json_is_object("{}") && json_is_object("{\"a\":[1,{\"b\":-2.5},\"c\"]}\n"));
    EXPECT(!json_is_object("{\"a\":1,}") && !json_is_object("{\"a\":01}") && !json_is_object("{a:1}"));
    EXPECT(!json_is_object("{\"a\":1} x") && !json_is_object("[1,2]") && !json_is_object("{\"a\":}"));
    EXPECT(!json_is_object("{\"a\":[1 2]}") && !json_is_object("{\"a\":1"));
}

static char text[262144];

static void the_text_is_strict_json_with_all_keys(void)
{
    static const char *const keys[] = {
        "version", "pid", "live_bytes", "resident_bytes", "reserved_bytes", "committed_bytes", "free_bytes",
        "returned_bytes", "retouched_bytes", "large_count", "large_bytes", "heap_count", "dead_heap_count", "taken_bytes",
        "limit_soft_bytes", "group_memory_bytes", "counters", "classes", "heap_born", "return_pages", "bytes", "slabs", "allocs", "frees", "live"};
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = malloc((size_t)i * 900);
    size_t length = hak_stats_json(text, sizeof text);
    REQUIRE(length > 100 && length < sizeof text);
    EXPECT(strlen(text) == length);
    EXPECT(text[length - 1] == '\n');
    EXPECT_SAY(json_is_object(text), "at \"%.40s\"", json_at);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", keys[i]);
        EXPECT_SAY(strstr(text, quoted) != NULL, "key %s", keys[i]);
    }
    EXPECT(strstr(text, HAKMEM_VERSION) != NULL);
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    EXPECT(strstr(text, pid) != NULL);
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
}

static void the_numbers_are_those_of_stats_get(void)
{
    static struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    hak_stats_json(text, sizeof text);
    const char *at = strstr(text, "\"live_bytes\"");
    REQUIRE(at != NULL);
    unsigned long long live_bytes = strtoull(strchr(at, ':') + 1, NULL, 10);
    EXPECT_SAY(live_bytes == stats.live_bytes, "%llu and %llu", live_bytes, (unsigned long long)stats.live_bytes);
}

static void a_short_buffer_is_filled_and_ended(void)
{
    static char whole[262144];
    size_t length = hak_stats_json(whole, sizeof whole);
    EXPECT(hak_stats_json(NULL, 0) + 64 >= length);
    static const size_t cuts[] = {1, 2, 10, 100, 500};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        memset(text, 'x', 1000);
        size_t said = hak_stats_json(text, cuts[i]);
        EXPECT_SAY(said + 64 >= length && said <= length + 64, "%zu and %zu", said, length);
        EXPECT_SAY(strlen(text) == cuts[i] - 1, "%zu in %zu", strlen(text), cuts[i]);
        EXPECT(text[cuts[i]] == 'x');
        EXPECT(cuts[i] < 2 || memcmp(text, whole, cuts[i] < 20 ? cuts[i] - 1 : 19) == 0);
    }
}

static void it_never_allocates(void)
{
    static struct hak_stats before, after;
    hak_stats_get(&before, sizeof before);
    for (int i = 0; i < 100; i++)
        hak_stats_json(text, sizeof text);
    hak_stats_get(&after, sizeof after);
    for (uint32_t i = 0; i < after.class_count; i++)
        EXPECT(after.class_stats[i].alloc_count == before.class_stats[i].alloc_count);
}

int main(void)
{
    RUN(the_reader_itself_is_strict);
    RUN(the_text_is_strict_json_with_all_keys);
    RUN(the_numbers_are_those_of_stats_get);
    RUN(a_short_buffer_is_filled_and_ended);
    RUN(it_never_allocates);
    return EXPECT_RESULT();
}
