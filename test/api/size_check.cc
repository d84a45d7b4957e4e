/* size_check.cc - with size_check=0 a wrong size in a sized delete or free is let pass; what is freed twice is not. */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <initializer_list>
#include <new>

extern "C" void free_sized(void *block, size_t bytes);
extern "C" void free_aligned_sized(void *block, size_t align, size_t bytes);

static void wrong_sizes_pass()
{
    static const size_t sizes[] = {28, 100, 1000, 3000, 20000, 70000, 3000000};
    for (size_t bytes : sizes)
        for (size_t stated : {(size_t)1, bytes / 3, bytes * 5}) {
            ::operator delete(::operator new(bytes), stated);
            ::operator delete[](::operator new[](bytes), stated);
            free_sized(malloc(bytes), stated);
            ::operator delete(::operator new(bytes, std::align_val_t(64)), stated, std::align_val_t(64));
            void *block = NULL;
            EXPECT(posix_memalign(&block, 64, bytes) == 0);
            free_aligned_sized(block, 64, stated);
        }
    hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    EXPECT_SAY(stats.live_bytes < 100000, "%llu bytes live", (unsigned long long)stats.live_bytes);
}

static void a_second_delete_does_not()
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        void *block = ::operator new(100000), *volatile again = block; /* the compiler sees through the rest */
        ::operator delete(block, 5);
        ::operator delete(again, 5);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT_SAY(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", status);
}

int main()
{
    REQUIRE(hak_option_set("size_check", "0") == 0);
    RUN(wrong_sizes_pass);
    RUN(a_second_delete_does_not);
    return EXPECT_RESULT();
}
