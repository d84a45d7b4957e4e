/* destructors.cc - C++ objects that free at the end: of a thread (thread_local) and of the process (static).
 *
 * Owns:    objects whose destructors run before, between and after the library's own thread-end work.
 * Threads: one object per thread; the checks are made by the process's exit status, in a child.
 * ctest: secure
 */
#include "expect.h"

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct hoard {
    std::map<int, std::string> words;
    std::unique_ptr<std::vector<char>> large;
    hoard()
    {
        for (int i = 0; i < 200; i++)
            words[i] = std::string((size_t)i * 3, (char)('a' + i % 26));
        large.reset(new std::vector<char>(100000, 'x'));
    }
    void check() const
    {
        for (const auto &word : words)
            if (word.second.size() != (size_t)word.first * 3)
                abort();
        if (large->at(99999) != 'x')
            abort();
    }
    ~hoard()
    {
        check();
        std::vector<std::string> last(50, std::string(300, 'y')); /* allocates while everything ends */
        if (last[49].size() != 300)
            abort();
    }
};

static thread_local hoard of_thread;
static thread_local std::unique_ptr<hoard> late_of_thread;
static hoard of_process;
static std::shared_ptr<hoard> shared_hoard = std::make_shared<hoard>();

static void thread_local_objects_free_at_thread_end()
{
    for (int round = 0; round < 100; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++)
            threads.emplace_back([] {
                of_thread.check();
                late_of_thread = std::make_unique<hoard>();
            });
        for (auto &thread : threads)
            thread.join();
    }
}

static void the_last_owner_of_a_block_is_another_thread()
{
    for (int round = 0; round < 200; round++) {
        auto shared = std::make_shared<hoard>();
        std::thread one([shared] { shared->check(); }), two([shared = std::move(shared)] { shared->check(); });
        one.join();
        two.join();
    }
}

static void exit_runs_static_destructors_while_threads_live()
{
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) {
            late_of_thread = std::make_unique<hoard>();
            for (int k = 0; k < 3; k++)
                std::thread([] {
                    for (;;)
                        std::string(500, 'z').append("more than before");
                }).detach();
            atexit([] { std::vector<int>(10000).clear(); });
            exit(0);
        }
        int status = child_wait(child, 20);
        EXPECT_SAY(status == 0, "status %#x", (unsigned)status);
    }
}

int main()
{
    of_process.check();
    of_thread.check();
    RUN(thread_local_objects_free_at_thread_end);
    RUN(the_last_owner_of_a_block_is_another_thread);
    RUN(exit_runs_static_destructors_while_threads_live);
    return EXPECT_RESULT();
}
