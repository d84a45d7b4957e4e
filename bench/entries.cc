// entries.cc - what each entry point costs, one after the other in one process; run by entries.py.
//
//     entries [TIMES]         one line per case: its name, a tab, nanoseconds an operation
//
// An operation replaces a block: one is freed and one allocated. Of the 100 that are held it is every seventh, round and round, unless it is said
// otherwise. Each figure is the least of five rounds of TIMES operations (200,000). Blocks are touched where that is said.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <malloc.h>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int ROUNDS = 5;
int times = 200000;
void *volatile sink;

double now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void say(const char *name, double ns) {
    std::printf("%s\t%.2f\n", name, ns);
    std::fflush(stdout);
}

template <typename Work> double least(int count, Work work) {
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now_ns();
        for (int i = 0; i < count; i++)
            work(i);
        double ns = (now_ns() - begin) / count;
        if (ns < best)
            best = ns;
    }
    return best;
}

// Of `count` blocks one is replaced each time: every seventh, or any.
template <typename Take, typename Give> void held(const char *name, unsigned count, bool any, Take take, Give give) {
    std::vector<void *> blocks(count);
    for (void *&block : blocks)
        block = take();
    uint64_t random = 12345;
    unsigned at = 0;
    double ns = least(times, [&](int) {
        if (any) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            at = static_cast<unsigned>((random >> 33) % count);
        } else {
            at = (at + 7) % count;
        }
        give(blocks[at]);
        blocks[at] = take();
    });
    for (void *block : blocks)
        give(block);
    say(name, ns);
}

template <typename Take, typename Give> void each(const char *name, Take take, Give give) { held(name, 100, false, take, give); }

void give_free(void *block) { std::free(block); }
void give_delete(void *block) { ::operator delete(block); }

template <size_t BYTES> void *take() { return std::malloc(BYTES); }
template <size_t BYTES> void *take_zeroed() { return std::calloc(1, BYTES); }
template <size_t BYTES> void *take_new() { return ::operator new(BYTES); }
template <size_t BYTES> void give_sized(void *block) { ::operator delete(block, BYTES); }
template <size_t ALIGN, size_t BYTES> void *take_aligned() {
    void *block = nullptr;
    return posix_memalign(&block, ALIGN, BYTES) == 0 ? block : nullptr;
}
template <size_t ALIGN, size_t BYTES> void *take_new_aligned() { return ::operator new(BYTES, std::align_val_t(ALIGN)); }

void plain() {
    each("malloc, free: 64 bytes", take<64>, give_free);
    each("malloc, free: 2,000", take<2000>, give_free);
    each("malloc, free: 20,000", take<20000>, give_free);
    each("malloc, free: 40,000", take<40000>, give_free);
    each("malloc, free: 200,000", take<200000>, give_free);
    each("calloc: 64", take_zeroed<64>, give_free);
    each("calloc: 600", take_zeroed<600>, give_free);
    each("calloc: 4,096", take_zeroed<4096>, give_free);
    each("posix_memalign: 100 at 64", take_aligned<64, 100>, give_free);
    each("posix_memalign: 4,096 at 4,096", take_aligned<4096, 4096>, give_free);
    say("malloc, free: 0 bytes, none held, after 20 MB were freed", least(times, [](int) {
            void *block = std::malloc(0);
            sink = block;
            std::free(block);
        }));
    say("free(NULL)", least(times, [](int) { std::free(nullptr); }));
}

void operators() {
    each("new, delete: 40", take_new<40>, give_delete);
    each("new, delete: 2,000", take_new<2000>, give_delete);
    each("new, delete: 40,000", take_new<40000>, give_delete);
    each("new, sized delete: 40", take_new<40>, give_sized<40>);
    each("new, sized delete: 2,000", take_new<2000>, give_sized<2000>);
    each("new, sized delete: 40,000", take_new<40000>, give_sized<40000>);
    each("new nothrow: 200", [] { return ::operator new(200, std::nothrow); }, give_delete);
    each("new[], delete[]: 100", [] { return ::operator new[](100); }, [](void *block) { ::operator delete[](block); });
    each("aligned new, delete: 128 at 64", take_new_aligned<64, 128>, [](void *block) { ::operator delete(block, std::align_val_t(64)); });
    each("aligned new, sized delete: 128 at 64", take_new_aligned<64, 128>, [](void *block) { ::operator delete(block, 128, std::align_val_t(64)); });
}

void asked(const char *name, size_t bytes) {
    void *block = std::malloc(bytes);
    size_t sum = 0;
    say(name, least(times, [&](int) { sum += malloc_usable_size(block); }));
    sink = reinterpret_cast<void *>(sum);
    std::free(block);
}

void stays(const char *name, size_t bytes) {
    void *block = std::malloc(bytes);
    say(name, least(times, [&](int i) { block = std::realloc(block, bytes - static_cast<size_t>(i % 3)); }));
    std::free(block);
}

void moves(const char *name, size_t from, size_t to) {
    say(name, least(times, [=](int) {
            char *block = static_cast<char *>(std::malloc(from));
            *const_cast<volatile char *>(block) = 1;
            std::free(std::realloc(block, to));
        }));
}

void resized() {
    asked("malloc_usable_size: 100", 100);
    asked("malloc_usable_size: 4,000", 4000);
    asked("malloc_usable_size: 100,000", 100000);
    stays("realloc, stays: 100", 100);
    stays("realloc, stays: 4,000", 4000);
    stays("realloc, stays: 100,000", 100000);
    moves("malloc, realloc, free: 24 to 60", 24, 60);
    moves("malloc, realloc, free: 400 to 1,000", 400, 1000);
    moves("malloc, realloc, free: 1,500 to 3,000", 1500, 3000);
    moves("malloc, realloc, free: 1,000 to 100", 1000, 100);
    constexpr size_t LONGEST = 600;
    say("realloc, a byte more each time to 600", least(times / 200 + 1, [](int) {
            void *block = nullptr;
            for (size_t bytes = 1; bytes <= LONGEST; bytes++)
                block = std::realloc(block, bytes);
            std::free(block);
        }) / LONGEST);
}

void many() {
    held("every seventh of 64 held: 64", 64, false, take<64>, give_free);
    held("any of 256 held: 64", 256, true, take<64>, give_free);
    held("any of 1,024 held: 64", 1024, true, take<64>, give_free);
    held("any of 256 held: 256", 256, true, take<256>, give_free);
    held("any of 4,096 held: 256", 4096, true, take<256>, give_free);
    held("any of 64 held: 2,000", 64, true, take<2000>, give_free);
    held("any of 64 held: 40,000", 64, true, take<40000>, give_free);
}

// Blocks that another thread allocated: 2,048 at a time, and the time of the thread that frees them.
template <typename Take, typename Give> void strange(const char *name, bool any, Take take, Give give) {
    constexpr int COUNT = 2048;
    static void *blocks[COUNT];
    std::atomic<int> turn{0};
    int turns = times / COUNT * ROUNDS + 1;
    double best = 1e18;
    std::thread other([&] {
        for (int i = 0; i < turns; i++) {
            while (turn.load(std::memory_order_acquire) != 1)
                std::this_thread::yield();
            double begin = now_ns();
            for (void *block : blocks)
                give(block);
            double ns = (now_ns() - begin) / COUNT;
            if (ns < best)
                best = ns;
            turn.store(0, std::memory_order_release);
        }
    });
    uint64_t random = 12345;
    for (int i = 0; i < turns; i++) {
        for (void *&block : blocks) {
            block = take();
            *static_cast<volatile char *>(block) = 1;
        }
        for (int k = COUNT - 1; any && k > 0; k--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            std::swap(blocks[k], blocks[(random >> 33) % static_cast<unsigned>(k + 1)]);
        }
        turn.store(1, std::memory_order_release);
        while (turn.load(std::memory_order_acquire) != 0)
            std::this_thread::yield();
    }
    other.join();
    say(name, best);
}

void strangers() {
    strange("another thread's, free: 64", false, take<64>, give_free);
    strange("another thread's, delete: 64", false, take_new<64>, give_delete);
    strange("another thread's, sized delete: 64", false, take_new<64>, give_sized<64>);
    strange("another thread's, in no order, free: 64", true, take<64>, give_free);
    strange("another thread's, in no order, sized delete: 64", true, take_new<64>, give_sized<64>);
    strange("another thread's, sized delete: 2,000", false, take_new<2000>, give_sized<2000>);
}

}  // namespace

int main(int count, char **arguments) {
    char *end = nullptr;
    if (count > 1)
        times = static_cast<int>(std::strtol(arguments[1], &end, 10));
    if (count > 2 || (end && *end) || times < 1000 || times > 100000000) {
        std::fprintf(stderr, "entries: how many times, from 1000 to 100000000\n");
        return 2;
    }
    plain();
    operators();
    resized();
    many();
    strangers();
    return 0;
}
