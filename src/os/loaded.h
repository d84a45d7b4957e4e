/* loaded.h - find a function in the libraries of the process, wherever and whenever they were loaded.
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

#ifdef __cplusplus
}
#endif
#endif
