/* new_slow.cc - the new-handler and std::bad_alloc, without needing a C++ runtime.
 *
 * Owns:      nothing.
 * Borrows:   the C++ runtime of the program, if it has one, by weak references alone: the library must start in C
 *            programs too, and must not bring a libstdc++ of its own. One that came later, by dlopen for one
 *            plugin only, is looked for when it is needed.
 * Threads:   any.
 * Unwinding: exceptions pass through these frames; the one that a nothrow form must catch is caught in
 *            front/handler_call.c.
 * Static:    a fully static C++ program may hold no std::__throw_bad_alloc; it is linked with
 *            -Wl,-u,_ZSt17__throw_bad_allocv, or its failing new ends in the line of runtime_missing().
 */
#include "front/new_slow.h"

#include "base/text.h"
#include "front/fast.h"
#include "front/handler_call.h"
#include "os/loaded.h"
#include "os/os.h"

#define WEAK __attribute__((weak))

/* front/front.h, which C++ cannot read: its structs are made of C's atomics */
extern "C" __attribute__((visibility("hidden"))) void *hak_front_aligned(size_t align, size_t bytes);
extern "C" __attribute__((visibility("hidden"))) void *hak_malloc_slow_from(size_t bytes, const void *address, uintptr_t stack);

/* Who called the operator, whose fast path left to us by a tail call. */
struct caller { const void *address; uintptr_t stack; };
#define CALLER() (caller{__builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa()})

extern "C" {
typedef void handler_function(void);
typedef handler_function *get_handler_function(void);
WEAK handler_function *hak_runtime_get_new_handler(void) __asm__("_ZSt15get_new_handlerv");
WEAK void hak_runtime_throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");
}

static handler_function *handler_get(void) {
    get_handler_function *get = hak_runtime_get_new_handler;
    if (!get)
        get = (get_handler_function *)hak_loaded_function("_ZSt15get_new_handlerv");
    return get ? get() : nullptr;
}

[[noreturn]] static HAK_COLD void runtime_missing(size_t size) {
    char bytes[200];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "hakmem: operator new: no memory for %zu bytes, and no C++ runtime to throw std::bad_alloc",
                    size);
    hak_text_end_line(&text);
    hak_os_write(2, bytes, hak_text_held(&text));
    hak_os_abort();
}

[[noreturn]] static HAK_COLD void bad_alloc_throw(size_t size) {
    handler_function *thrower = hak_runtime_throw_bad_alloc;
    if (!thrower)
        thrower = (handler_function *)hak_loaded_function("_ZSt17__throw_bad_allocv");
    if (thrower)
        thrower();
    runtime_missing(size);
}

/* One try: an alignment that is no power of two has no block; what malloc aligns anyway needs no other path. */
static void *block_try(size_t size, size_t alignment, caller from) {
    if (alignment <= HAK_NEW_ALIGNMENT)
        return hak_malloc_slow_from(size, from.address, from.stack);
    return hak_front_aligned(alignment, size);
}

static bool is_power_of_two(size_t number) {
    return number && !(number & (number - 1));
}

/* The first try failed. */
static HAK_COLD void *handlers_or_throw(size_t size, size_t alignment, caller from) {
    for (;;) {
        handler_function *handler = handler_get();
        if (!handler)
            bad_alloc_throw(size);
        handler(); /* frees something, sets another handler, or throws through us */
        void *block = block_try(size, alignment, from);
        if (block != nullptr)
            return block;
    }
}

static void handler_run(void *handler) { (*(handler_function **)handler)(); }

static HAK_COLD void *block_or_null(size_t size, size_t alignment, caller from) noexcept
{
    if (!is_power_of_two(alignment))
        return nullptr;
    for (;;) {
        void *block = block_try(size, alignment, from);
        handler_function *handler = block ? nullptr : handler_get();
        if (!handler)
            return block;
        if (!hak_handler_call(handler_run, &handler))
            return nullptr;
    }
}

/* A call of the program's own operator, and what it gave. */
struct theirs {
    void *(*plain)(size_t);
    void *(*aligned)(size_t, size_t);
    size_t size, alignment;
    void *block;
};

static void theirs_run(void *call) {
    theirs *their = (theirs *)call;
    their->block = their->plain ? their->plain(their->size) : their->aligned(their->size, their->alignment);
}

static void *theirs_or_null(theirs call) noexcept { return hak_handler_call(theirs_run, &call) ? call.block : nullptr; }

void *hak_new_caught(void *(*plain)(size_t), size_t size) { return theirs_or_null({plain, nullptr, size, 0, nullptr}); }
void *hak_new_aligned_caught(void *(*aligned)(size_t, size_t), size_t size, size_t alignment) {
    return theirs_or_null({nullptr, aligned, size, alignment, nullptr});
}

void *hak_new_slow(size_t size) {
    caller from = CALLER();
    void *block = hak_malloc_slow_from(size, from.address, from.stack);
    return HAK_LIKELY(block != nullptr) ? block : handlers_or_throw(size, HAK_NEW_ALIGNMENT, from);
}
void *hak_new_aligned_slow(size_t size, size_t alignment) {
    if (!is_power_of_two(alignment))
        bad_alloc_throw(size);
    caller from = CALLER();
    void *block = block_try(size, alignment, from);
    return HAK_LIKELY(block != nullptr) ? block : handlers_or_throw(size, alignment, from);
}
void *hak_new_nothrow_slow(size_t size) { return block_or_null(size, HAK_NEW_ALIGNMENT, CALLER()); }
void *hak_new_aligned_nothrow_slow(size_t size, size_t alignment) { return block_or_null(size, alignment, CALLER()); }
