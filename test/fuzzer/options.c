/* options.c - libFuzzer gives the options whatever the environment and hak_option_set may hold (src/rules/options.c).
 *
 * Invariant: every number stays within its row's range and every text ends within its room; what hak_option_set took reads
 *            back, and what it refused changed nothing; a message is one line without a control character.
 * An input is lines: `NAME=VALUE` for the environment, behind a `!` for hak_option_set, behind a `?` for hak_option_steer.
 */
#include "base/text.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "rules/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x), abort()))

bool hak_os_secure(void) { return false; }

void hak_os_note(int fd, const void *bytes, size_t count) {
    const char *text = bytes;
    EXPECT(fd == 2 && count > 0 && count <= 512 && text[count - 1] == '\n');
    for (size_t i = 0; i + 1 < count; i++) EXPECT((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void all_expect(void) {
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        const char *field = (const char *)&hak_options + row->offset;
        uint64_t number;
        if (row->is_text) {
            EXPECT(memchr(field, 0, HAK_OPTION_TEXT_BYTES));
        } else {
            memcpy(&number, field, sizeof number);
            EXPECT(number >= row->min && number <= row->max);
        }
    }
}

static void set_one(char *line) {
    char before[HAK_OPTION_TEXT_BYTES], after[HAK_OPTION_TEXT_BYTES];
    char *value = strchr(line, '=');
    if (value) *value++ = 0;
    size_t had = hak_option_get(line, before, sizeof before);
    int error = hak_option_set(line, value);
    EXPECT(error == 0 || error == EINVAL || error == ERANGE || error == ENOENT || error == EPERM);
    size_t has = hak_option_get(line, after, sizeof after);
    if (error) EXPECT(had == has && strcmp(before, after) == 0);
    else EXPECT(hak_option_is_pinned(hak_option_index(line)));
}

static void steer_one(char *line) {
    char *value = strchr(line, '=');
    if (!value) return;
    *value++ = 0;
    unsigned index = hak_option_index(line);
    if (index == HAK_OPTION_COUNT) return;
    bool was_pinned = hak_option_is_pinned(index);
    EXPECT(!hak_option_steer(index, strtoull(value, NULL, 10)) || !was_pinned);
}

enum { LINES_MAX = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    char *environment[LINES_MAX + 1], *lines[LINES_MAX];
    unsigned entries = 0, used = 0;
    char *bytes = malloc(count + 1);
    if (!bytes) return 0;
    memcpy(bytes, data, count);
    bytes[count] = 0;
    for (char *at = bytes, *end = bytes + count; at < end && used < LINES_MAX;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        *stop = 0;
        lines[used] = malloc(strlen(at) + 1); /* so that a read behind its end is seen */
        if (!lines[used]) break;
        strcpy(lines[used], at);
        if (*at != '!' && *at != '?') environment[entries++] = lines[used];
        used++;
        at = stop + 1;
    }
    environment[entries] = NULL;
    hak_options_load(environment);
    all_expect();
    for (unsigned i = 0; i < used; i++) {
        if (lines[i][0] == '!') set_one(lines[i] + 1);
        if (lines[i][0] == '?') steer_one(lines[i] + 1);
        all_expect();
        free(lines[i]);
    }
    free(bytes);
    return 0;
}
