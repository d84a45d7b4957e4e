/* loaded.h - find a function in the libraries of the process, wherever and whenever they were loaded; or put another in its place.
 *
 * A weak reference sees only what stands in the program's own scope when we are loaded: not the C++ runtime of a
 * plugin that Python, say, loads later for itself alone.
 */
#ifndef HAK_OS_LOADED_H
#define HAK_OS_LOADED_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Its address in the first library that exports it, or NULL. Takes the loader's lock, allocates nothing. */
void *hak_loaded_function(const char *name);

/* The same in the libraries that stand behind the one that holds the address `inside`; if none has it, in those before. */
void *hak_loaded_next(const char *name, const void *inside);

struct hak_loaded_name {
    const char *name;
    void *function;
};
/* In the first library that exports `mark`, each of these names leads to the function given here from now on, for whoever looks it
 * up there: lookups that were made stay as they are. Names that it does not export are passed over. False: there is no such
 * library, or its table cannot be written; then nothing is changed. May be called again, and by several threads. */
bool hak_loaded_redirect(const char *mark, const struct hak_loaded_name *names, size_t count);

#ifdef __cplusplus
}
#endif
#endif
