/* module.h - the program and its libraries, by build-id: what an address is in a file, so that it means something in the next run.
 *
 * Threads:   any; the loader's lock is held while its list is walked, so only at start and at the end.
 */
#ifndef HAK_OS_MODULE_H
#define HAK_OS_MODULE_H

#include "base/attr.h"
#include "base/text.h"

enum { HAK_BUILD_ID_BYTES_MAX = 32 };

struct hak_module {
    uintptr_t base, start, end; /* offset = address - base; [start, end) is mapped */
    uint32_t id_bytes;          /* 0: it has none */
    unsigned char id[HAK_BUILD_ID_BYTES_MAX];
};

/* The first 8 bytes of the id, the first byte highest; 0: it has none. */
uint64_t hak_module_name(const struct hak_module *module);

/* What is loaded, the program itself first; returns how many rows were filled. */
size_t hak_modules(struct hak_module *rows, size_t count_max);

/* The program's file name without its folders, characters other than letters, digits and ._+- as '_'. */
void hak_program_name(char *bytes, size_t count);

/* A path that the user named: `%p` is the process number, `%e` the program's name as above, `%%` a percent sign. True: the number is in it, and
 * each process has a path of its own. */
bool hak_path_expand(struct hak_text *text, const char *path);

#endif
