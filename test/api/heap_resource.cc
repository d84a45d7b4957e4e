/* heap_resource.cc - memory_resource.hpp: heaps as objects, containers over them, limits as exceptions, and what moves along.
 *
 * ctest: secure
 */
#include <hakmem/memory_resource.hpp>

#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

#include "expect.h" /* last: malloc is a macro of its own */

static struct hak_heap_stats stats_of(const hakmem::heap &heap)
{
    struct hak_heap_stats stats;
    hak_heap_stats_get(heap.get(), &stats, sizeof stats);
    return stats;
}

static void takes(std::pmr::memory_resource &resource, size_t bytes, size_t align = 16)
{
    void *volatile block = resource.allocate(bytes, align);
    (void)block;
}

static void containers_hold_blocks_of_the_heap()
{
    hakmem::heap heap;
    hakmem::heap_resource resource(heap);
    {
        std::pmr::vector<std::pmr::string> list(&resource);
        std::vector<int, hakmem::heap_allocator<int>> numbers{hakmem::heap_allocator<int>(heap)};
        std::map<int, int, std::less<int>, hakmem::heap_allocator<std::pair<const int, int>>> table{hakmem::heap_allocator<std::pair<const int, int>>(heap)};
        for (int i = 0; i < 1000; i++) {
            list.emplace_back("a string that is longer than what fits into itself");
            numbers.push_back(i);
            table[i] = i * 2;
        }
        EXPECT(hak_heap_of(numbers.data()) == heap.get() && hak_heap_of(list.data()) == heap.get() && hak_heap_of(list[500].data()) == heap.get());
        EXPECT(stats_of(heap).live_count == 1000 + 1000 + 2);
    }
    EXPECT(stats_of(heap).live_count == 0);
}

static void a_heap_takes_its_blocks_along()
{
    static struct hak_stats before, after;
    hak_stats_get(&before, sizeof before);
    {
        hakmem::heap heap;
        hakmem::heap_resource resource(heap);
        auto *list = new (resource.allocate(sizeof(std::pmr::vector<int>), alignof(std::pmr::vector<int>))) std::pmr::vector<int>(&resource);
        for (int i = 0; i < 100000; i++)
            list->push_back(i);
        std::thread([&] { takes(resource, 5000); }).join();
        EXPECT(stats_of(heap).live_count == 3);
        heap.clear();
        EXPECT(stats_of(heap).live_count == 0);
        takes(resource, 70000, 4096);
    }
    hak_stats_get(&after, sizeof after);
    EXPECT_SAY(after.live_bytes <= before.live_bytes + 4096, "%llu", (unsigned long long)(after.live_bytes - before.live_bytes));
}

static void a_heap_moves_and_its_resources_go_on()
{
    hakmem::heap one, two;
    hak_heap_t *first = one.get();
    hakmem::heap_resource resource(one), same(first), other(two);
    EXPECT(resource == same && resource != other && resource != *std::pmr::new_delete_resource() && resource != hakmem::memory_resource());
    hakmem::heap moved = std::move(one);
    EXPECT(moved.get() == first && one.get() == nullptr);
    void *block = resource.allocate(100);
    EXPECT(hak_heap_of(block) == first);
    two = std::move(moved);
    EXPECT(two.get() == first && stats_of(two).live_count == 1);
    same.deallocate(block, 100);
    std::vector<int, hakmem::heap_allocator<int>> a({1, 2, 3}, hakmem::heap_allocator<int>(two)), b = a;
    EXPECT(b.get_allocator() == a.get_allocator() && hak_heap_of(b.data()) == first);
    std::vector<int, hakmem::heap_allocator<int>> c = std::move(a);
    EXPECT(c.get_allocator().get() == first && c[2] == 3);
}

static void blocks_stay_when_it_is_detached()
{
    hakmem::heap heap;
    hakmem::heap_resource resource(heap);
    void *block = resource.allocate(100);
    memset(block, 7, 100);
    heap.detach();
    EXPECT(heap.get() == nullptr && hak_heap_of(block) == nullptr && static_cast<char *>(block)[99] == 7);
    free(block);
}

static void a_limit_is_an_exception()
{
    hakmem::heap heap(4 << 20);
    hakmem::heap_resource resource(heap);
    int caught = 0;
    {
        std::pmr::vector<std::pmr::string> list(&resource);
        try {
            for (;;)
                list.emplace_back(1000, 'x');
        } catch (const std::bad_alloc &) {
            caught++;
        }
        EXPECT(list.size() > 2000);
    }
    try {
        takes(resource, 5 << 20);
    } catch (const std::bad_alloc &) {
        caught++;
    }
    try {
        void *volatile block = hakmem::heap_allocator<long>(heap).allocate(SIZE_MAX / 4);
        (void)block;
    } catch (const std::bad_array_new_length &) {
        caught++;
    }
    EXPECT_SAY(caught == 3, "%d", caught);
    void *block = resource.allocate(1 << 20);
    resource.deallocate(block, 1 << 20);
}

static void every_size_and_alignment()
{
    hakmem::heap heap;
    hakmem::heap_resource resource(heap);
    for (size_t align = 1; align <= 2 << 20; align *= 2)
        for (size_t bytes : {0, 1, 15, 16, 17, 100, 1024, 1025, 4000, 32768, 32769, 100000}) {
            void *block = resource.allocate(bytes, align);
            EXPECT((uintptr_t)block % align == 0 && hak_heap_of(block) == heap.get());
            memset(block, 0x5a, bytes);
            resource.deallocate(block, bytes, align);
        }
    EXPECT(stats_of(heap).live_count == 0);
}

int main()
{
    RUN(containers_hold_blocks_of_the_heap);
    RUN(a_heap_takes_its_blocks_along);
    RUN(a_heap_moves_and_its_resources_go_on);
    RUN(blocks_stay_when_it_is_detached);
    RUN(a_limit_is_an_exception);
    RUN(every_size_and_alignment);
    return EXPECT_RESULT();
}
