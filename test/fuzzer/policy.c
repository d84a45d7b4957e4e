/* policy.c - libFuzzer gives the reader of policy files whatever bytes it can think of (src/learn/policy_text.c).
 *
 * Invariant: a file is believed whole or not at all, and always for a reason; what is believed holds only numbers within
 *            their ranges, and is written back so that it is believed again and written to the same bytes.
 * Each input is read twice: as it is, and with a fitting end, or nothing behind the sum would ever be reached.
 * Linked with the pure sources alone: their system calls stand below.
 */
#include "learn/policy_text.h"
#include "os/os.h"
#include "rules/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool hak_os_secure(void) { return false; }
void hak_os_note(int fd, const void *bytes, size_t count) { (void)fd, (void)bytes, (void)count; }

#define EXPECT(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x), abort()))

enum { ROOM = 2 * HAK_POLICY_BYTES_MAX };
static struct hak_policy policy, again;
static struct hak_policy_site site[HAK_POLICY_SITES_MAX];
static unsigned site_count;
static char text_first[ROOM], text_second[ROOM];

static void site_keep(const struct hak_policy_site *from, void *context) {
    EXPECT(context == &policy && site_count < HAK_POLICY_SITES_MAX);
    EXPECT(from->module != 0 && from->address == 0 && from->kind < HAK_POLICY_KIND_COUNT);
    site[site_count++] = *from;
}

static void site_drop(const struct hak_policy_site *from, void *context) { (void)from, (void)context; }

static size_t written(char *to, const struct hak_policy *from) {
    struct hak_text text = { to, 0, ROOM };
    hak_policy_write_text(&text, from);
    for (unsigned i = 0; i < site_count; i++) hak_policy_write_site(&text, &site[i]);
    hak_policy_write_end(&text);
    size_t count = hak_text_end(&text);
    EXPECT(count < ROOM);
    return count;
}

static void one(const char *bytes, size_t count) {
    site_count = 0;
    if (!hak_policy_read_text(&policy, bytes, count, NULL, site_keep, &policy)) {
        EXPECT(policy.wrong && policy.line <= count + 1);
        return;
    }
    EXPECT(!policy.wrong && policy.runs >= 1 && policy.stage >= 1 && policy.stage <= 3 && policy.strategy[0]);
    EXPECT(policy.site_count == site_count && policy.knob_count <= HAK_POLICY_ROWS_MAX);
    for (unsigned i = 0; i < policy.knob_count; i++) {
        const struct hak_option_row *row = &hak_option_rows[policy.knob[i].option];
        EXPECT(policy.knob[i].option < HAK_OPTION_COUNT && !row->is_text);
        EXPECT(policy.knob[i].value >= row->min && policy.knob[i].value <= row->max);
    }
    size_t first = written(text_first, &policy);
    EXPECT(hak_policy_read_text(&again, text_first, first, policy.program, site_drop, NULL));
    size_t second = written(text_second, &again);
    EXPECT(first == second && memcmp(text_first, text_second, first) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    static char bytes[ROOM];
    if (count > HAK_POLICY_BYTES_MAX) return 0; /* such a file is not opened */
    char *exact = malloc(count + 1);            /* so that a read behind its last byte is seen */
    if (!exact) return 0;
    memcpy(exact, data, count);
    one(exact, count);
    free(exact);
    struct hak_text text = { bytes, 0, sizeof bytes };
    hak_text_bytes(&text, (const char *)data, count);
    hak_policy_write_end(&text);
    size_t held = hak_text_held(&text);
    exact = malloc(held);
    if (!exact) return 0;
    memcpy(exact, bytes, held);
    one(exact, held);
    free(exact);
    return 0;
}
