/* operators_replaced.cc - a program that defines operator new and delete of one block only: all other forms call these.
 *
 * Owns:   its four operators, which put a header before each block, so that a form that passes them by ends the program.
 * Source: C++17 [new.delete.single], [new.delete.array]: what the default versions call.
 */
#include "expect.h"

#include <new>
#include <vector>

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation" /* that it is missing is what is tested */
#endif

enum { HEADER = 64 };
static long live_count, live_aligned_count;
static bool is_failing;

void *operator new(size_t size)
{
    if (is_failing) throw std::bad_alloc();
    char *block = (char *)malloc(size + HEADER);
    if (!block) throw std::bad_alloc();
    live_count++;
    return block + HEADER;
}

void operator delete(void *block) noexcept
{
    if (!block) return;
    live_count--;
    free((char *)block - HEADER);
}

void *operator new(size_t size, std::align_val_t alignment)
{
    size_t offset = (size_t)alignment > HEADER ? (size_t)alignment : (size_t)HEADER;
    if (is_failing) throw std::bad_alloc();
    char *block = (char *)aligned_alloc((size_t)alignment, size + offset);
    if (!block) throw std::bad_alloc();
    live_aligned_count++;
    *(char **)(block + offset - sizeof block) = block;
    return block + offset;
}

void operator delete(void *block, std::align_val_t) noexcept
{
    if (!block) return;
    live_aligned_count--;
    free(((char **)block)[-1]);
}

template <typename New, typename Delete> static void pair_calls_ours(long *live, New allocate, Delete release)
{
    for (size_t size : {(size_t)1, (size_t)24, (size_t)1000, (size_t)5000, (size_t)200000}) {
        void *block = allocate(size);
        EXPECT_SAY(*live == 1, "%ld live, size %zu", *live, size);
        memset(block, 1, size);
        release(block, size);
        EXPECT_SAY(*live == 0, "%ld live after, size %zu", *live, size);
    }
}

static void every_form_calls_the_programs_own()
{
    auto plain = [](size_t n) { return ::operator new(n); };
    auto array = [](size_t n) { return ::operator new[](n); };
    auto quiet = [](size_t n) { return ::operator new(n, std::nothrow); };
    auto quiet_array = [](size_t n) { return ::operator new[](n, std::nothrow); };
    pair_calls_ours(&live_count, plain, [](void *p, size_t n) { ::operator delete(p, n); });
    pair_calls_ours(&live_count, plain, [](void *p, size_t) { ::operator delete(p, std::nothrow); });
    pair_calls_ours(&live_count, array, [](void *p, size_t) { ::operator delete[](p); });
    pair_calls_ours(&live_count, array, [](void *p, size_t n) { ::operator delete[](p, n); });
    pair_calls_ours(&live_count, quiet, [](void *p, size_t) { ::operator delete(p); });
    pair_calls_ours(&live_count, quiet_array, [](void *p, size_t) { ::operator delete[](p, std::nothrow); });
}

static void every_aligned_form_calls_the_programs_own()
{
    static constexpr std::align_val_t a{256};
    auto plain = [](size_t n) { return ::operator new(n, a); };
    auto array = [](size_t n) { return ::operator new[](n, a); };
    auto quiet = [](size_t n) { return ::operator new(n, a, std::nothrow); };
    auto quiet_array = [](size_t n) { return ::operator new[](n, a, std::nothrow); };
    pair_calls_ours(&live_aligned_count, plain, [](void *p, size_t n) { ::operator delete(p, n, a); });
    pair_calls_ours(&live_aligned_count, array, [](void *p, size_t) { ::operator delete[](p, a); });
    pair_calls_ours(&live_aligned_count, array, [](void *p, size_t n) { ::operator delete[](p, n, a); });
    pair_calls_ours(&live_aligned_count, quiet, [](void *p, size_t) { ::operator delete(p, a, std::nothrow); });
    pair_calls_ours(&live_aligned_count, quiet_array, [](void *p, size_t) { ::operator delete[](p, a, std::nothrow); });
}

static void nothrow_forms_catch_what_the_programs_own_throws()
{
    is_failing = true;
    EXPECT(::operator new(8, std::nothrow) == nullptr);
    EXPECT(::operator new[](8, std::nothrow) == nullptr);
    EXPECT(::operator new(8, std::align_val_t{64}, std::nothrow) == nullptr);
    EXPECT(::operator new[](8, std::align_val_t{64}, std::nothrow) == nullptr);
    bool caught = false;
    try {
        ::operator delete[](::operator new[](8));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    EXPECT(caught);
    is_failing = false;
}

static void containers_work()
{
    {
        std::vector<std::vector<int>> rows(100);
        for (int i = 0; i < 100; i++) rows[(size_t)i].assign((size_t)i * 37, i);
        EXPECT(live_count > 90);
    }
    EXPECT_SAY(live_count == 0, "%ld live", live_count);
}

int main()
{
    RUN(every_form_calls_the_programs_own);
    RUN(every_aligned_form_calls_the_programs_own);
    RUN(nothrow_forms_catch_what_the_programs_own_throws);
    RUN(containers_work);
    return EXPECT_RESULT();
}
