/* temporary.h - where tests put their files: below $TMPDIR, or /tmp. */
#ifndef HAK_TEST_TEMPORARY_H
#define HAK_TEST_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

/* `path`, an array, becomes the folder for temporary files and a name: a template for mkstemp or mkdtemp where that ends in XXXXXX. */
#define TEMPORARY(path, name) temporary_path(path, sizeof path, name)

__attribute__((unused)) static void temporary_path(char *path, size_t bytes, const char *name)
{
    const char *folder = getenv("TMPDIR");
    int length = snprintf(path, bytes, "%s/%s", folder && folder[0] == '/' ? folder : "/tmp", name);
    if (length < 0 || (size_t)length >= bytes)
        abort();
}

#endif
