/* hot_cold.c - the operators new that LLVM's memory profiling calls, by their mangled names.
 *
 * Source: llvm/lib/Transforms/Utils/BuildLibCalls.cpp, emitHotColdNew and its relatives.
 */
#include "expect.h"

extern void *new_hot_cold(size_t, uint8_t) __asm__("_Znwm12__hot_cold_t");
extern void *new_array_hot_cold(size_t, uint8_t) __asm__("_Znam12__hot_cold_t");
extern void *new_nothrow_hot_cold(size_t, const void *, uint8_t) __asm__("_ZnwmRKSt9nothrow_t12__hot_cold_t");
extern void *new_array_nothrow_hot_cold(size_t, const void *, uint8_t) __asm__("_ZnamRKSt9nothrow_t12__hot_cold_t");
extern void *new_aligned_hot_cold(size_t, size_t, uint8_t) __asm__("_ZnwmSt11align_val_t12__hot_cold_t");
extern void *new_array_aligned_hot_cold(size_t, size_t, uint8_t) __asm__("_ZnamSt11align_val_t12__hot_cold_t");
extern void *new_aligned_nothrow_hot_cold(size_t, size_t, const void *, uint8_t)
    __asm__("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t");
extern void *new_array_aligned_nothrow_hot_cold(size_t, size_t, const void *, uint8_t)
    __asm__("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t");
extern void delete_sized(void *, size_t) __asm__("_ZdlPvm");
extern void delete_sized_aligned(void *, size_t, size_t) __asm__("_ZdlPvmSt11align_val_t");

static const char nothrow;

static void used_and_deleted(void *block, size_t size, size_t alignment)
{
    EXPECT_SAY(block && ((uintptr_t)block & (alignment - 1)) == 0, "%p, size %zu, alignment %zu", block, size, alignment);
    EXPECT(malloc_usable_size(block) >= size);
    memset(block, 0x5a, size);
    if (alignment > 16)
        delete_sized_aligned(block, size, alignment);
    else
        delete_sized(block, size);
}

static void every_form_gives_a_block(void)
{
    static const size_t sizes[] = {0, 1, 16, 100, 1024, 1025, 40000, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned hint = 0; hint < 256; hint += 51) {
            size_t size = sizes[i];
            uint8_t hot = (uint8_t)hint;
            used_and_deleted(new_hot_cold(size, hot), size, 16);
            used_and_deleted(new_array_hot_cold(size, hot), size, 16);
            used_and_deleted(new_nothrow_hot_cold(size, &nothrow, hot), size, 16);
            used_and_deleted(new_array_nothrow_hot_cold(size, &nothrow, hot), size, 16);
            used_and_deleted(new_aligned_hot_cold(size, 256, hot), size, 256);
            used_and_deleted(new_array_aligned_hot_cold(size, 4096, hot), size, 4096);
            used_and_deleted(new_aligned_nothrow_hot_cold(size, 64, &nothrow, hot), size, 64);
            used_and_deleted(new_array_aligned_nothrow_hot_cold(size, 32, &nothrow, hot), size, 32);
        }
}

static void without_memory_nothrow_gives_null(void)
{
    EXPECT(new_nothrow_hot_cold((size_t)PTRDIFF_MAX + 1, &nothrow, 0) == NULL);
    EXPECT(new_array_aligned_nothrow_hot_cold((size_t)PTRDIFF_MAX, 4096, &nothrow, 255) == NULL);
}

int main(void)
{
    RUN(every_form_gives_a_block);
    RUN(without_memory_nothrow_gives_null);
    return EXPECT_RESULT();
}
