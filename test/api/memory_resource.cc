/* memory_resource.cc - memory_resource.hpp: containers, sites, alignment, shortage, and what is stated wrongly.
 *
 * ctest: secure
 */
#include <hakmem/memory_resource.hpp>

#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "expect.h" /* last: malloc is a macro of its own */

static struct hak_site_stats row_of(hak_site_t site)
{
    static struct hak_site_stats rows[64];
    size_t count = hak_site_stats(rows, 64);
    for (size_t i = 0; i < count && i < 64; i++)
        if (rows[i].site == site) return rows[i];
    return {};
}

static void a_container_is_counted_under_its_site()
{
    hak_site_t site = HAK_SITE;
    {
        hakmem::memory_resource resource(site);
        std::pmr::vector<std::pmr::string> list(&resource);
        std::pmr::unordered_map<int, std::pmr::string> table(&resource);
        for (int i = 0; i < 1000; i++) {
            list.emplace_back("a string that is longer than what fits into itself");
            table.emplace(i, std::to_string(i) + " is what this entry is about, at some length");
        }
        struct hak_site_stats row = row_of(site);
        EXPECT(row.alloc_count - row.free_count >= 3000);
        EXPECT(row.alloc_bytes - row.free_bytes >= 1000 * (sizeof(std::pmr::string) + 50 + 40));
        for (int i = 0; i < 1000; i++)
            EXPECT(table.at(i).compare(0, std::to_string(i).size(), std::to_string(i)) == 0);
    }
    struct hak_site_stats row = row_of(site);
    EXPECT(row.alloc_count > 0 && row.alloc_count == row.free_count && row.alloc_bytes == row.free_bytes);
}

static void resources_of_one_site_are_equal()
{
    hak_site_t site = HAK_SITE;
    hakmem::memory_resource one(site), same(site), other(HAK_SITE), plain;
    EXPECT(one == same && one != other && one != plain && plain == hakmem::memory_resource());
    EXPECT(one != *std::pmr::new_delete_resource());
    void *block = one.allocate(100);
    same.deallocate(block, 100);
    struct hak_site_stats row = row_of(site);
    EXPECT(row.alloc_count == 1 && row.free_count == 1);
}

static void every_size_and_alignment()
{
    hakmem::memory_resource plain, named(HAK_SITE);
    for (hakmem::memory_resource *resource : {&plain, &named})
        for (size_t align = 1; align <= 2 << 20; align *= 2)
            for (size_t bytes : {0, 1, 15, 16, 17, 100, 1024, 1025, 4000, 32768, 32769, 100000}) {
                void *block = resource->allocate(bytes, align);
                EXPECT((uintptr_t)block % align == 0);
                memset(block, 0x5a, bytes);
                resource->deallocate(block, bytes, align);
            }
}

template <class T> using named_vector = std::vector<T, hakmem::allocator<T>>;

static void allocators_take_their_site_along()
{
    hak_site_t first = HAK_SITE, second = HAK_SITE;
    named_vector<int> a({1, 2, 3}, hakmem::allocator<int>(first)), b({4, 5}, hakmem::allocator<int>(second));
    named_vector<int> copied = a;
    EXPECT(copied.get_allocator().site() == first);
    copied = b; /* keeps its own */
    EXPECT(copied.get_allocator().site() == first && copied == b);
    const int *place = b.data();
    a = std::move(b);
    EXPECT(a.get_allocator().site() == second && a.data() == place);
    using pair_allocator = hakmem::allocator<std::pair<const int, std::string>>;
    std::map<int, std::string, std::less<>, pair_allocator> map{pair_allocator(first)};
    for (int i = 0; i < 500; i++) map[i * 7 % 500] = std::to_string(i);
    EXPECT(map.size() == 500 && row_of(first).alloc_count >= 500);
    map.clear();
    EXPECT(hakmem::allocator<int>() == hakmem::allocator<char>() && hakmem::allocator<int>(first) != hakmem::allocator<int>(second));
    auto shared = std::allocate_shared<std::string>(hakmem::allocator<std::string>(second), "shared");
    EXPECT(*shared == "shared" && row_of(second).alloc_count > 0);
}

struct alignas(64) line {
    char bytes[64];
};

static void at_least_is_all_there_is()
{
    hakmem::allocator<char[24]> odd, named(HAK_SITE); /* no power of two */
    for (auto allocator : {odd, named})
        for (size_t count = 1; count < 3000; count += count / 3 + 1) {
            auto result = allocator.allocate_at_least(count);
            EXPECT(result.count >= count && hak_usable_size(result.ptr) >= result.count * 24);
            memset(result.ptr, 1, result.count * 24);
            allocator.deallocate(result.ptr, count % 2 ? count : result.count);
        }
    hakmem::allocator<line> lines;
    auto result = lines.allocate_at_least(3);
    EXPECT((uintptr_t)result.ptr % 64 == 0 && result.count >= 3);
    lines.deallocate(result.ptr, result.count);
}

static int handler_calls;
static void handler() { if (++handler_calls == 3) std::set_new_handler(nullptr); }

static void shortage_is_told()
{
    hakmem::memory_resource plain, named(HAK_SITE);
    int caught = 0;
    for (hakmem::memory_resource *resource : {&plain, &named})
        for (size_t align : {8, 4096}) {
            try {
                (void)resource->allocate((size_t)PTRDIFF_MAX - 8192, align);
            } catch (const std::bad_alloc &) {
                caught++;
            }
        }
    EXPECT(caught == 4);
    std::set_new_handler(handler);
    try {
        (void)plain.allocate((size_t)PTRDIFF_MAX - 8192);
    } catch (const std::bad_alloc &) {
        caught++;
    }
    EXPECT(caught == 5 && handler_calls == 3);
    try {
        (void)hakmem::allocator<long>().allocate((size_t)PTRDIFF_MAX / 4);
    } catch (const std::bad_array_new_length &) {
        caught++;
    }
    EXPECT(caught == 6);
}

static void threads_share_a_resource()
{
    hak_site_t site = HAK_SITE;
    hakmem::memory_resource resource(site);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&resource] {
            for (int round = 0; round < 200; round++) {
                std::pmr::vector<int> list(&resource);
                for (int i = 0; i < 300; i++) list.push_back(i);
                EXPECT(list[299] == 299);
            }
        });
    for (std::thread &thread : threads) thread.join();
    struct hak_site_stats row = row_of(site);
    EXPECT(row.alloc_count == row.free_count && row.alloc_bytes == row.free_bytes && row.alloc_count >= 800);
}

/* What a child says on standard error before it dies of SIGABRT. */
template <class Act> static std::string misuse_line(Act act)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        act();
        _exit(0);
    }
    close(ends[1]);
    char text[512] = "";
    ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return std::string(text, length > 0 ? (size_t)length : 0);
}

static bool says(const std::string &line, const char *what)
{
    if (line.find(what) != std::string::npos) return true;
    fprintf(stderr, "said: %s", line.c_str());
    return false;
}

static void wrong_sizes_are_found()
{
    EXPECT(says(misuse_line([] { hakmem::memory_resource r; r.deallocate(r.allocate(100), 5000); }), "but the caller says 5000"));
    EXPECT(says(misuse_line([] { hakmem::memory_resource r; r.deallocate(r.allocate(800), 16); }), "but the caller says 16"));
    EXPECT(says(misuse_line([] { hakmem::memory_resource r(7); r.deallocate(r.allocate(100), 5000); }), "but the caller says 5000"));
    EXPECT(says(misuse_line([] { hakmem::memory_resource r; r.deallocate((char *)r.allocate(256, 64) + 16, 100, 64); }), "is not aligned to 64"));
    EXPECT(says(misuse_line([] { hakmem::memory_resource r(7); void *p = r.allocate(100); r.deallocate(p, 100); r.deallocate(p, 100); }), "hakmem: "));
}

int main()
{
    RUN(a_container_is_counted_under_its_site);
    RUN(resources_of_one_site_are_equal);
    RUN(every_size_and_alignment);
    RUN(allocators_take_their_site_along);
    RUN(at_least_is_all_there_is);
    RUN(shortage_is_told);
    RUN(threads_share_a_resource);
    RUN(wrong_sizes_are_found);
    return EXPECT_RESULT();
}
