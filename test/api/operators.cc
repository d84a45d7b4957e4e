/* operators.cc - every form of operator new and delete, and what they promise on failure.
 *
 * Owns:   the new_handler while a test runs.
 * Source: C++17 [new.delete]; sized and aligned forms must lead to the same allocator as malloc.
 * ctest: secure
 */
#include "expect.h"

#include <new>
#include <string>
#include <vector>

static bool ptr_is_aligned(const void *ptr, size_t alignment)
{
    return ((uintptr_t)ptr & (alignment - 1)) == 0;
}

static const size_t sizes[] = {0, 1, 8, 16, 17, 100, 1000, 1024, 1025, 4096, 30000, 32768, 32769, 100000, 3000000};

template <typename New, typename Delete> static void pair_works(size_t alignment, New allocate, Delete release)
{
    for (size_t size : sizes) {
        void *block = allocate(size);
        EXPECT_SAY(block != nullptr && ptr_is_aligned(block, alignment), "%p, size %zu, alignment %zu", block, size, alignment);
        EXPECT(malloc_usable_size(block) >= size);
        memset(block, 0x5a, size);
        release(block, size);
    }
}

static void every_plain_form_pairs_with_every_delete()
{
    auto plain = [](size_t n) { return ::operator new(n); };
    auto array = [](size_t n) { return ::operator new[](n); };
    auto quiet = [](size_t n) { return ::operator new(n, std::nothrow); };
    auto quiet_array = [](size_t n) { return ::operator new[](n, std::nothrow); };
    pair_works(16, plain, [](void *p, size_t) { ::operator delete(p); });
    pair_works(16, plain, [](void *p, size_t n) { ::operator delete(p, n); });
    pair_works(16, plain, [](void *p, size_t) { ::operator delete(p, std::nothrow); });
    pair_works(16, array, [](void *p, size_t) { ::operator delete[](p); });
    pair_works(16, array, [](void *p, size_t n) { ::operator delete[](p, n); });
    pair_works(16, array, [](void *p, size_t) { ::operator delete[](p, std::nothrow); });
    pair_works(16, quiet, [](void *p, size_t) { ::operator delete(p); });
    pair_works(16, quiet, [](void *p, size_t n) { ::operator delete(p, n); });
    pair_works(16, quiet_array, [](void *p, size_t) { ::operator delete[](p); });
    pair_works(16, quiet_array, [](void *p, size_t n) { ::operator delete[](p, n); });
    pair_works(16, plain, [](void *p, size_t) { free(p); });
    pair_works(16, [](size_t n) { return malloc(n); }, [](void *p, size_t n) { ::operator delete(p, n); });
}

static void every_aligned_form_pairs_with_every_aligned_delete()
{
    for (size_t alignment = 1; alignment <= (size_t)1 << 20; alignment *= 2) {
        std::align_val_t align{alignment};
        auto plain = [=](size_t n) { return ::operator new(n, align); };
        auto array = [=](size_t n) { return ::operator new[](n, align); };
        auto quiet = [=](size_t n) { return ::operator new(n, align, std::nothrow); };
        auto quiet_array = [=](size_t n) { return ::operator new[](n, align, std::nothrow); };
        size_t least = alignment < 16 ? 16 : alignment;
        pair_works(least, plain, [=](void *p, size_t) { ::operator delete(p, align); });
        pair_works(least, plain, [=](void *p, size_t n) { ::operator delete(p, n, align); });
        pair_works(least, plain, [=](void *p, size_t) { ::operator delete(p, align, std::nothrow); });
        pair_works(least, array, [=](void *p, size_t) { ::operator delete[](p, align); });
        pair_works(least, array, [=](void *p, size_t n) { ::operator delete[](p, n, align); });
        pair_works(least, array, [=](void *p, size_t) { ::operator delete[](p, align, std::nothrow); });
        pair_works(least, quiet, [=](void *p, size_t n) { ::operator delete(p, n, align); });
        pair_works(least, quiet_array, [=](void *p, size_t n) { ::operator delete[](p, n, align); });
    }
}

static void deleting_null_does_nothing()
{
    ::operator delete(nullptr);
    ::operator delete(nullptr, (size_t)10);
    ::operator delete(nullptr, std::nothrow);
    ::operator delete(nullptr, std::align_val_t(64));
    ::operator delete(nullptr, (size_t)10, std::align_val_t(64));
    ::operator delete(nullptr, std::align_val_t(64), std::nothrow);
    ::operator delete[](nullptr);
    ::operator delete[](nullptr, (size_t)10);
    ::operator delete[](nullptr, std::nothrow);
    ::operator delete[](nullptr, std::align_val_t(64));
    ::operator delete[](nullptr, (size_t)10, std::align_val_t(64));
    ::operator delete[](nullptr, std::align_val_t(64), std::nothrow);
}

static void zero_sized_objects_are_distinct()
{
    void *one = ::operator new(0), *two = ::operator new(0);
    EXPECT(one != two);
    ::operator delete(one);
    ::operator delete(two);
}

struct alignas(128) wide {
    char bytes[384];
};

static void expressions_of_over_aligned_types()
{
    for (int i = 0; i < 1000; i++) {
        wide *one = new wide, *many = new wide[7];
        EXPECT(ptr_is_aligned(one, 128) && ptr_is_aligned(many, 128));
        memset(one, 1, sizeof *one);
        memset(many, 2, 7 * sizeof *many);
        delete one;
        delete[] many;
    }
}

static void the_standard_library_works()
{
    std::vector<std::string> words;
    for (int i = 0; i < 100000; i++)
        words.push_back(std::string((size_t)i % 200, (char)('a' + i % 26)));
    for (int i = 0; i < 100000; i++)
        EXPECT(words[(size_t)i].size() == (size_t)i % 200);
    words.clear();
    words.shrink_to_fit();
}

/* --- failure -------------------------------------------------------------------------------------- */

static volatile size_t size_huge = PTRDIFF_MAX;
static volatile size_t size_beyond = SIZE_MAX - 3;

template <typename Call> static bool throws_bad_alloc(Call call)
{
    try {
        void *block = call();
        EXPECT_SAY(false, "%p came back", block);
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void every_throwing_form_throws_bad_alloc()
{
    for (size_t size : {(size_t)size_huge, (size_t)size_beyond, (size_t)PTRDIFF_MAX + 1}) {
        EXPECT(throws_bad_alloc([=] { return ::operator new(size); }));
        EXPECT(throws_bad_alloc([=] { return ::operator new[](size); }));
        EXPECT(throws_bad_alloc([=] { return ::operator new(size, std::align_val_t(64)); }));
        EXPECT(throws_bad_alloc([=] { return ::operator new[](size, std::align_val_t(4096)); }));
        EXPECT(throws_bad_alloc([=] { return ::operator new(size, std::align_val_t(16)); }));
    }
}

static void every_nothrow_form_gives_null()
{
    for (size_t size : {(size_t)size_huge, (size_t)size_beyond, (size_t)PTRDIFF_MAX + 1}) {
        EXPECT(::operator new(size, std::nothrow) == nullptr);
        EXPECT(::operator new[](size, std::nothrow) == nullptr);
        EXPECT(::operator new(size, std::align_val_t(64), std::nothrow) == nullptr);
        EXPECT(::operator new[](size, std::align_val_t(4096), std::nothrow) == nullptr);
    }
}

static int handler_calls;
static void handler_that_gives_up_after_three()
{
    if (++handler_calls % 3 == 0)
        std::set_new_handler(nullptr);
}
static void handler_that_throws()
{
    handler_calls++;
    throw std::bad_alloc();
}
struct own_failure : std::bad_alloc {};
static void handler_that_throws_its_own() { throw own_failure(); }

static void the_new_handler_is_called_until_it_gives_up()
{
    handler_calls = 0;
    for (int i = 0; i < 4; i++) {
        std::set_new_handler(handler_that_gives_up_after_three);
        int before = handler_calls;
        switch (i) {
        case 0: EXPECT(throws_bad_alloc([] { return ::operator new(size_huge); })); break;
        case 1: EXPECT(throws_bad_alloc([] { return ::operator new[](size_huge, std::align_val_t(256)); })); break;
        case 2: EXPECT(::operator new(size_huge, std::nothrow) == nullptr); break;
        case 3: EXPECT(::operator new(size_huge, std::align_val_t(256), std::nothrow) == nullptr); break;
        }
        EXPECT_SAY(handler_calls == before + 3, "form %d: %d calls", i, handler_calls - before);
    }
    EXPECT(std::get_new_handler() == nullptr);
}

static void a_throwing_handler_reaches_the_caller_or_becomes_null()
{
    std::set_new_handler(handler_that_throws);
    EXPECT(throws_bad_alloc([] { return ::operator new(size_huge); }));
    EXPECT(::operator new(size_huge, std::nothrow) == nullptr);
    EXPECT(::operator new[](size_huge, std::align_val_t(64), std::nothrow) == nullptr);
    std::set_new_handler(handler_that_throws_its_own);
    bool own = false;
    try {
        ::operator delete(::operator new(size_huge));
    } catch (const own_failure &) {
        own = true;
    }
    EXPECT(own);
    std::set_new_handler(nullptr);
}

static void *ballast;
static void handler_that_frees()
{
    free(ballast);
    ballast = nullptr;
    std::set_new_handler(nullptr);
}
static void a_new_handler_is_not_called_on_success()
{
    handler_calls = 0;
    ballast = malloc(100);
    std::set_new_handler(handler_that_frees);
    for (size_t size : sizes)
        ::operator delete(::operator new(size));
    EXPECT(ballast != nullptr);
    std::set_new_handler(nullptr);
    free(ballast);
}

static void array_sizes_that_overflow_throw()
{
    volatile size_t count = SIZE_MAX / 4;
    bool threw = false;
    try {
        delete[] new long[count];
    } catch (const std::bad_alloc &) {
        threw = true;
    }
    EXPECT(threw);
}

int main()
{
    RUN(every_plain_form_pairs_with_every_delete);
    RUN(every_aligned_form_pairs_with_every_aligned_delete);
    RUN(deleting_null_does_nothing);
    RUN(zero_sized_objects_are_distinct);
    RUN(expressions_of_over_aligned_types);
    RUN(the_standard_library_works);
    RUN(every_throwing_form_throws_bad_alloc);
    RUN(every_nothrow_form_gives_null);
    RUN(the_new_handler_is_called_until_it_gives_up);
    RUN(a_throwing_handler_reaches_the_caller_or_becomes_null);
    RUN(a_new_handler_is_not_called_on_success);
    RUN(array_sizes_that_overflow_throw);
    return EXPECT_RESULT();
}
