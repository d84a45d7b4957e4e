/* mappings.c - see mappings.h. Lines: "low-high rights offset device inode   path". Read in pieces; a line that a piece cuts is
 * moved to the front. */
#include "os/mappings.h"

#include "os/descriptor.h"
#include "os/os.h"

#include <string.h>

static uint64_t hex_read(const char **at) {
    uint64_t number = 0;
    for (;; ++*at) {
        char c = **at;
        if (c >= '0' && c <= '9') number = number * 16 + (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f') number = number * 16 + (uint64_t)(c - 'a') + 10;
        else return number;
    }
}

static const char *word_next(const char *at) {
    while (*at && *at != ' ') at++;
    while (*at == ' ') at++;
    return at;
}

static struct hak_mapping line_read(const char *line) {
    struct hak_mapping mapping = { 0 };
    mapping.low = (uintptr_t)hex_read(&line);
    if (*line == '-') line++;
    mapping.high = (uintptr_t)hex_read(&line);
    line = word_next(line);
    mapping.is_readable = *line == 'r';
    line = word_next(line);
    mapping.offset = hex_read(&line);
    mapping.path = word_next(word_next(word_next(line)));
    return mapping;
}

void hak_os_mappings(char *buffer, size_t bytes, bool (*each)(const struct hak_mapping *mapping, void *context), void *context) {
    int fd = hak_os_open_read("/proc/thread-self/maps");
    bool goes_on = fd >= 0;
    for (size_t held = 0; goes_on;) {
        long got = hak_os_read(fd, buffer + held, bytes - held);
        if (got <= 0) break;
        held += (size_t)got;
        char *line = buffer, *end;
        while (goes_on && (end = memchr(line, '\n', (size_t)(buffer + held - line))) != NULL) {
            *end = 0;
            struct hak_mapping mapping = line_read(line);
            goes_on = each(&mapping, context);
            line = end + 1;
        }
        held = (size_t)(buffer + held - line);
        if (held == bytes) break;
        memmove(buffer, line, held);
    }
    if (fd >= 0) hak_os_close(fd);
}
