/* policy_file.h - a policy file as text, for tests that change one. */
#ifndef HAK_TEST_POLICY_FILE_H
#define HAK_TEST_POLICY_FILE_H

#include "expect.h"

#include <fcntl.h>

static char text[16384];

EXPECT_UNUSED static void text_read(const char *path)
{
    int fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0);
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    text[count > 0 ? count : 0] = 0;
}

EXPECT_UNUSED static void text_write(const char *path, const char *content)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content));
    close(fd);
}

/* The line `end`, with the sum of all before it (docs/policy.md), in place of what stands from there on. */
EXPECT_UNUSED static void text_end(char *end)
{
    *end = 0;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (const char *at = text; *at; at++)
        sum = (sum ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    snprintf(end, 64, "end %016llx\n", (unsigned long long)sum);
}

#endif
