/* policy_text.c - a policy file is read back as it was written, refused with a reason where it is wrong, and whatever bytes
 * it has it is believed whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "learn/policy_text.h"
#include "rules/options.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct hak_policy policy;
static struct hak_policy_site sites[16];
static unsigned site_count;

static void site_keep(const struct hak_policy_site *site, void *context) {
    (void)context;
    if (site_count < 16) sites[site_count] = *site;
    site_count++;
}

static const char body[] = "hakmem-policy 1\n"
                           "program 4c1b0a7e2f3d5b6a8c9d0e1f2a3b4c5d6e7f8091 redis-server\n"
                           "# for people\n"
                           "library 0.1.0\n"
                           "runs 3\n"
                           "stage frozen\n"
                           "strategy hold\n"
                           "gain 61200 -8100 45\n"
                           "noise 23000 51\n"
                           "spare 2 5\n"
                           "fell 1\n"
                           "dear 2\n"
                           "filled 64 12 13\n"
                           "filled 4224 3 3\n"
                           "knob purge_delay_ms 2000\n"
                           "knob free_max_mb 64\n"
                           "rating baseline 0 0 45 in\n"
                           "rating lean -412 88 7 out\n"
                           "history 0 frozen learn second_over 0 0\n"
                           "history 182340 learn canary gain_proved 61200 -8100\n"
                           "site 4c1b0a7e2f3d5b6a 1a2f40 208 12 pool 1 874 2210\n"
                           "site 00000000000000e5 0 96 133 keep 2 1500 1024\n";

static size_t with_end(char *bytes, const char *text) {
    struct hak_text whole = { bytes, 0, 65536 };
    hak_text_str(&whole, text);
    hak_policy_write_end(&whole);
    return hak_text_end(&whole);
}

static const char *wrong_with(const char *text, const char *program) {
    static char bytes[65536];
    size_t count = with_end(bytes, text);
    site_count = 0;
    return hak_policy_read_text(&policy, bytes, count, program, site_keep, NULL) ? NULL : policy.wrong;
}

/* The body with one line put in another's place, or without it (NULL), or with one more. */
static const char *wrong_line(const char *line, const char *instead) {
    static char text[8192];
    const char *at = strstr(body, line);
    assert_non_null(at);
    const char *after = strchr(at, '\n') + 1;
    snprintf(text, sizeof text, "%.*s%s%s%s", (int)(at - body), body, instead ? instead : "", instead ? "\n" : "", after);
    return wrong_with(text, NULL);
}

static void a_whole_file_is_read(void **state) {
    (void)state;
    assert_null(wrong_with(body, "4c1b0a7e2f3d5b6a8c9d0e1f2a3b4c5d6e7f8091"));
    assert_string_equal(policy.name, "redis-server");
    assert_string_equal(policy.library, "0.1.0");
    assert_int_equal(policy.runs, 3);
    assert_int_equal(policy.stage, 3);
    assert_string_equal(policy.strategy, "hold");
    assert_int_equal(policy.gain, 61200);
    assert_int_equal(policy.gain_error, -8100);
    assert_int_equal(policy.noise_duels, 51);
    assert_true(policy.has_spare && policy.halvings == 2 && policy.spare_runs == 5);
    assert_true(policy.fell == 1 && policy.dear == 2 && policy.filled_count == 2);
    assert_true(policy.filled[0].block_bytes == 64 && policy.filled[0].slabs == 12 && policy.filled[0].last == 13);
    assert_int_equal(policy.knob_count, 2);
    assert_int_equal(policy.knob[1].option, HAK_O_free_max_mb);
    assert_int_equal(policy.knob[1].value, 64);
    assert_int_equal(policy.rating_count, 2);
    assert_int_equal(policy.rating[1].elo, -412);
    assert_int_equal(policy.rating[1].state, 2);
    assert_int_equal(policy.change_count, 2);
    assert_string_equal(policy.change[1].reason, "gain_proved");
    assert_int_equal(policy.change[1].number[1], -8100);
    assert_int_equal(site_count, 2);
    assert_true(sites[0].module == 0x4c1b0a7e2f3d5b6a && sites[0].offset == 0x1a2f40 && sites[0].height == 208);
    assert_true(sites[0].class_index == 12 && sites[0].kind == HAK_POLICY_POOL && sites[0].number[1] == 874);
    assert_true(sites[1].module == 0xe5 && sites[1].kind == HAK_POLICY_KEEP && sites[1].number[2] == 1024);
}

static void what_is_written_is_read_back_to_the_byte(void **state) {
    (void)state;
    static char first[65536], second[65536];
    assert_null(wrong_with(body, NULL));
    for (unsigned pass = 0; pass < 2; pass++) {
        struct hak_text text = { pass ? second : first, 0, sizeof first };
        hak_policy_write_text(&text, &policy);
        for (unsigned i = 0; i < site_count; i++) hak_policy_write_site(&text, &sites[i]);
        hak_policy_write_end(&text);
        size_t count = hak_text_end(&text);
        site_count = 0;
        assert_true(hak_policy_read_text(&policy, text.at, count, NULL, site_keep, NULL));
    }
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "site 00000000000000e5 0 96 133 keep 2 1500 1024\n"));
}

static void each_mistake_has_its_reason(void **state) {
    (void)state;
    assert_string_equal(wrong_with("", NULL), "it is no policy file");
    assert_string_equal(wrong_with("hakmem-policy 2\n", NULL), "it is of another version than 1");
    assert_string_equal(wrong_with("hakmem-policy 1 \n", NULL), "it is of another version than 1");
    assert_string_equal(wrong_with("hakmem-policy 1\n", NULL), "this line must name the program");
    assert_string_equal(wrong_with(body, "4c1b0a7e2f3d5b6a8c9d0e1f2a3b4c5d6e7f8092"), "it is of another program");
    assert_string_equal(wrong_line("program", "program 4c1b0a7 x"), "a build-id is not one");
    assert_string_equal(wrong_line("program", "program 4C1b0a7e x"), "a build-id is not one");
    assert_string_equal(wrong_line("program", "program 4c1b0a7e x/y"), "a name has a character that names do not have");
    assert_string_equal(wrong_line("runs", NULL), "a line that must be there is missing");
    assert_string_equal(wrong_line("runs", "runs 0"), "a number is out of its range");
    assert_string_equal(wrong_line("runs", "runs 03"), "a number is out of its range");
    assert_string_equal(wrong_line("runs", "runs 99999999999999999999999"), "a number is out of its range");
    assert_string_equal(wrong_line("runs", "runs 3x"), "a number is not a number");
    assert_string_equal(wrong_line("runs", "runs"), "a field is missing");
    assert_string_equal(wrong_line("runs", "runs 3 4"), "it has more fields than it should");
    assert_string_equal(wrong_line("runs", "runs 3 "), "it ends with a space");
    assert_string_equal(wrong_line("runs", "runs  3"), "a field is missing");
    assert_string_equal(wrong_line("runs", "runs 3\nruns 3"), "it stands there twice");
    assert_string_equal(wrong_line("runs", "walks 3"), "its keyword is none of version 1");
    assert_string_equal(wrong_line("runs", ""), "a field is missing");
    assert_string_equal(wrong_line("spare", "spare 4 1"), "a number is out of its range");
    assert_string_equal(wrong_line("spare", "spare 1 0"), "a number is out of its range");
    assert_string_equal(wrong_line("spare", "spare 1 1\nspare 1 1"), "it stands there twice");
    assert_string_equal(wrong_line("fell", "fell 0"), "a number is out of its range");
    assert_string_equal(wrong_line("fell", "fell 9"), "a number is out of its range");
    assert_string_equal(wrong_line("fell", "fell 1\nfell 1"), "it stands there twice");
    assert_string_equal(wrong_line("dear", "dear 7"), "a number is out of its range");
    assert_string_equal(wrong_line("dear", "dear 2\ndear 2"), "it stands there twice");
    assert_string_equal(wrong_line("filled 64", "filled 4224 1 1"), "it stands there twice");
    assert_string_equal(wrong_line("filled 64", "filled 32897 1 1"), "a number is out of its range");
    assert_null(wrong_line("filled 64", "filled 0 1 1")); /* large blocks */
    assert_string_equal(wrong_line("filled 64", "filled 64 1048577 1"), "a number is out of its range");
    assert_string_equal(wrong_line("filled 64", "filled 64 1"), "a field is missing");
    assert_string_equal(wrong_line("stage", "stage off"), "a word is none of those that may stand there");
    assert_string_equal(wrong_line("knob free", "knob purge_delay_ms 3"), "it stands there twice");
    assert_string_equal(wrong_line("knob free", "knob free_max_mb 1048577"), "a number is out of its range");
    assert_string_equal(wrong_line("knob free", "knob FREE_MAX_MB 64"), "there is no such knob");
    assert_string_equal(wrong_line("knob free", "knob stats 1"), "there is no such knob");
    assert_string_equal(wrong_line("knob free", "knob report 1"), "there is no such knob");
    assert_string_equal(wrong_line("rating lean", "rating baseline 0 0 1 in"), "it stands there twice");
    assert_string_equal(wrong_line("rating lean", "rating lean -1 2 3 gone"), "a word is none of those that may stand there");
    assert_string_equal(wrong_line("rating lean", "rating lean - 2 3 in"), "a field is missing");
    assert_string_equal(wrong_line("site 4c", "site 4c1b0a7e2f3d5b6a1 0 1 2 pool 1 0 0"), "a number is out of its range");
    assert_string_equal(wrong_line("site 4c", "site 0 0 1 2 pool 1 0 0"), "a number is out of its range");
    assert_string_equal(wrong_line("site 4c", "site 4c 0 1 65536 pool 1 0 0"), "a number is out of its range");
    assert_string_equal(wrong_line("site 4c", "site 4c 0 1 2 pool 2 0 0"), "a number is out of its range");
    assert_string_equal(wrong_line("site 4c", "site 4c 0 1 2 pond 1 0 0"), "a word is none of those that may stand there");
}

static void a_cut_or_longer_file_is_refused(void **state) {
    (void)state;
    char bytes[8192];
    size_t count = with_end(bytes, body);
    for (size_t cut = 0; cut < count; cut++) assert_false(hak_policy_read_text(&policy, bytes, cut, NULL, NULL, NULL));
    assert_true(hak_policy_read_text(&policy, bytes, count, NULL, NULL, NULL));
    bytes[count] = '\n';
    assert_false(hak_policy_read_text(&policy, bytes, count + 1, NULL, NULL, NULL));
    assert_string_equal(policy.wrong, "something follows the end");
    bytes[count - 3] ^= 1;
    assert_false(hak_policy_read_text(&policy, bytes, count, NULL, NULL, NULL));
}

static void lines_and_rows_are_bounded(void **state) {
    (void)state;
    static char text[1 << 20], bytes[(1 << 20) + 64];
    size_t used = (size_t)snprintf(text, sizeof text, "%s#", body);
    memset(text + used, 'x', 300);
    strcpy(text + used + 300, "\n");
    struct hak_text whole = { bytes, 0, sizeof text };
    hak_text_str(&whole, text);
    hak_policy_write_end(&whole);
    assert_false(hak_policy_read_text(&policy, bytes, hak_text_end(&whole), NULL, NULL, NULL));
    assert_string_equal(policy.wrong, "it is longer than 256 bytes");

    used = (size_t)snprintf(text, sizeof text, "%s", body);
    for (unsigned i = 0; i < 70; i++) used += (size_t)snprintf(text + used, sizeof text - used, "rating r%u 0 0 1 in\n", i);
    whole = (struct hak_text){ bytes, 0, sizeof text };
    hak_text_str(&whole, text);
    hak_policy_write_end(&whole);
    assert_false(hak_policy_read_text(&policy, bytes, hak_text_end(&whole), NULL, NULL, NULL));
    assert_string_equal(policy.wrong, "there are too many of these");

    used = (size_t)snprintf(text, sizeof text, "%s", body);
    for (unsigned i = 0; i < HAK_POLICY_SITES_MAX; i++) used += (size_t)snprintf(text + used, sizeof text - used, "site 1 %x 0 0 pool 0 0 0\n", i);
    whole = (struct hak_text){ bytes, 0, sizeof text };
    hak_text_str(&whole, text);
    hak_policy_write_end(&whole);
    assert_false(hak_policy_read_text(&policy, bytes, hak_text_end(&whole), NULL, NULL, NULL));
    assert_string_equal(policy.wrong, "there are too many of these");
}

/* Right behind the bytes lies a page that may not be read. Half of the changed files get a fitting end, or nothing behind
 * the sum would ever be reached. */
static void changed_at_random_it_is_read_without_harm(void **state) {
    (void)state;
    enum { TRIALS = 300000, ROOM = 8192 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), text[ROOM], bytes[ROOM + 64];
    assert_true(map != MAP_FAILED && mprotect(map + ROOM, page, PROT_NONE) == 0);
    uint64_t dice = 88172645463325252u;
    unsigned believed = 0;
#define NEXT (dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17)
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        size_t count = sizeof body - 1;
        memcpy(text, body, count);
        for (unsigned changes = 1 + NEXT % 4; changes > 0; changes--) {
            size_t at = NEXT % count, other = NEXT % count, run = 1 + NEXT % 24;
            switch (NEXT % 5) {
            case 0: text[at] = (char)NEXT; break;
            case 1: text[at] = "0123456789 -\n#ax"[NEXT % 16]; break;
            case 2: /* a piece goes */
                if (at + run < count) memmove(text + at, text + at + run, count - at - run), count -= run;
                break;
            case 3: /* a piece comes twice */
                if (other + run < count && count + run < ROOM - 64) {
                    char piece[32];
                    memcpy(piece, text + other, run);
                    memmove(text + at + run, text + at, count - at);
                    memcpy(text + at, piece, run);
                    count += run;
                }
                break;
            default: text[at] = text[other]; break;
            }
        }
        struct hak_text whole = { bytes, 0, sizeof bytes };
        hak_text_bytes(&whole, text, count);
        if (NEXT % 2) hak_policy_write_end(&whole);
        size_t held = hak_text_held(&whole);
        memcpy(map + ROOM - held, bytes, held);
        site_count = 0;
        if (hak_policy_read_text(&policy, map + ROOM - held, held, NULL, site_keep, NULL)) {
            believed++;
            assert_true(policy.runs >= 1 && policy.stage >= 1 && policy.stage <= 3 && policy.strategy[0]);
            for (unsigned i = 0; i < policy.knob_count; i++) {
                const struct hak_option_row *row = &hak_option_rows[policy.knob[i].option];
                assert_true(policy.knob[i].value >= row->min && policy.knob[i].value <= row->max);
            }
            assert_int_equal(site_count, policy.site_count);
        } else {
            assert_non_null(policy.wrong);
            assert_true(policy.line <= 64 + count);
        }
    }
    munmap(map, ROOM + page);
    print_message("%u of %u changed files were still policies\n", believed, TRIALS);
    assert_true(believed > TRIALS / 100); /* or the test tests only the sum */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(what_is_written_is_read_back_to_the_byte),
        cmocka_unit_test(each_mistake_has_its_reason),
        cmocka_unit_test(a_cut_or_longer_file_is_refused),
        cmocka_unit_test(lines_and_rows_are_bounded),
        cmocka_unit_test(changed_at_random_it_is_read_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
