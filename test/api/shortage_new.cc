/* shortage_new.cc - under HAKMEM_LIMIT_HARD_MB operator new asks the callback, then the new-handler, then throws.
 *
 * ctest: native
 */
#include "expect.h"

#include <hakmem/hakmem.h>

#include <new>

static const size_t MIB = (size_t)1 << 20, LIMIT_MB = 64;

static unsigned callback_count, handler_count;
static char *reserve;

static int refuse(void *, size_t) { callback_count++; return 0; }

static int give_up(void *, size_t)
{
    callback_count++;
    if (reserve == nullptr)
        return 0;
    delete[] reserve;
    reserve = nullptr;
    return 1;
}

static void handler()
{
    handler_count++;
    if (reserve == nullptr)
        std::set_new_handler(nullptr);
    delete[] reserve;
    reserve = nullptr;
}

static bool throws(size_t size)
{
    try {
        char *volatile block = new char[size];
        delete[] block;
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void without_a_callback_it_throws()
{
    EXPECT(throws(LIMIT_MB * MIB));
    char *volatile array = new (std::nothrow) char[LIMIT_MB * MIB]; /* volatile: clang does without one that nobody looks at */
    EXPECT(array == nullptr);
    void *volatile aligned = ::operator new(LIMIT_MB * MIB, std::align_val_t(4096), std::nothrow);
    EXPECT(aligned == nullptr);
    EXPECT(!throws(MIB));
}

static void the_callback_comes_before_the_handler()
{
    reserve = new char[40 * MIB];
    callback_count = handler_count = 0;
    hak_on_shortage(give_up, nullptr);
    std::set_new_handler(handler);
    EXPECT(!throws(50 * MIB));
    EXPECT(callback_count == 1 && handler_count == 0);
}

static void the_handler_comes_when_the_callback_has_nothing()
{
    reserve = new char[40 * MIB];
    callback_count = handler_count = 0;
    hak_on_shortage(refuse, nullptr);
    std::set_new_handler(handler);
    EXPECT(!throws(50 * MIB));
    EXPECT(callback_count == 1 && handler_count == 1);
    EXPECT(throws(LIMIT_MB * MIB)); /* both are asked, and both have nothing more */
    EXPECT(callback_count == 3 && handler_count == 2);
    char *small[8];
    size_t count = 0;
    while (count < 8 && (small[count] = new (std::nothrow) char[10 * MIB]) != nullptr)
        count++;
    EXPECT(count >= 5 && count < 8);
    while (count > 0)
        delete[] small[--count];
    hak_on_shortage(nullptr, nullptr);
}

int main()
{
    REQUIRE(hak_option_set("limit_hard_mb", "64") == 0);
    RUN(without_a_callback_it_throws);
    RUN(the_callback_comes_before_the_handler);
    RUN(the_handler_comes_when_the_callback_has_nothing);
    return EXPECT_RESULT();
}
