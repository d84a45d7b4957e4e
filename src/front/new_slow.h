/* new_slow.h - what operator new does when the fast path has no block: the rules of C++, [new.delete]. */
#ifndef HAK_FRONT_NEW_SLOW_H
#define HAK_FRONT_NEW_SLOW_H

#include "base/attr.h"

enum { HAK_NEW_ALIGNMENT = 16 }; /* of every block; __STDCPP_DEFAULT_NEW_ALIGNMENT__ is the same */

#pragma GCC visibility push(hidden)

/* The slow path of malloc; without memory the new-handler is called and it is tried again, until there is no
 * handler: then std::bad_alloc is thrown. */
void *hak_new_slow(size_t size);
void *hak_new_aligned_slow(size_t size, size_t alignment);

/* The same for the forms with std::nothrow: NULL where those throw, and where the handler throws. */
void *hak_new_nothrow_slow(size_t size);
void *hak_new_aligned_nothrow_slow(size_t size, size_t alignment);

/* What the program's own throwing form gives, for its nothrow one: NULL where it throws. */
void *hak_new_caught(void *(*theirs)(size_t), size_t size);
void *hak_new_aligned_caught(void *(*theirs)(size_t, size_t), size_t size, size_t alignment);

#pragma GCC visibility pop
#endif
