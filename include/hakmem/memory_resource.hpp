/* memory_resource.hpp - HAKMEM for C++17 containers: a std::pmr::memory_resource and an allocator, by name of a place of the program, or over
 * a heap of its own.
 *
 *     hakmem::memory_resource names(HAK_SITE);             // what is held by it is one site: hak_site_stats(), hakmem record
 *     std::pmr::vector<std::pmr::string> list(&names);
 *     hakmem::allocator<int> allocator(HAK_SITE);          // for containers without pmr
 *     std::vector<int, hakmem::allocator<int>> numbers(allocator);
 *
 *     hakmem::heap request(64 << 20);                      // of 64 MiB at most; all its blocks go when it does
 *     hakmem::heap_resource resource(request);
 *     std::pmr::vector<std::pmr::string> words(&resource);
 *     std::vector<int, hakmem::heap_allocator<int>> more{hakmem::heap_allocator<int>(request)};
 *
 * Header only; link with -lhakmem as for hakmem.h. Sizes are bytes unless said otherwise. A resource or an allocator may be used by
 * any threads at once: all it has is a number. Short of memory the new-handler is called, and where there is none std::bad_alloc
 * thrown, as by operator new; without exceptions the program aborts.
 *
 * What is deallocated is checked like a sized delete: a size or an alignment that the block does not have is one line on standard
 * error and an abort (HAKMEM_SIZE_CHECK=0: sizes are not looked at). Of blocks of a site sizes are checked upwards only.
 *
 * A site is the one number 0 (none, and nothing is counted) or one as of HAK_SITE. Blocks aligned to more than 16 are not counted, for
 * hak_alloc_at() has no alignment.
 */
#ifndef HAKMEM_MEMORY_RESOURCE_HPP
#define HAKMEM_MEMORY_RESOURCE_HPP

#include <hakmem/hakmem.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>

namespace hakmem {

/* What every block is aligned to. */
inline constexpr std::size_t block_align = 16;

namespace detail {

/* C23's, under names of our own: the C library may declare them or not, and C++ would compare the declarations. */
extern "C" HAKMEM_API void hakmem_free_sized(void *ptr, std::size_t size) noexcept __asm__("free_sized");
extern "C" HAKMEM_API void hakmem_free_aligned_sized(void *ptr, std::size_t align, std::size_t size) noexcept __asm__("free_aligned_sized");

inline void *block_try(std::size_t bytes, std::size_t align, hak_site_t site) noexcept {
    if (align > block_align) return ::aligned_alloc(align, bytes);
    return site ? hak_alloc_at(bytes, site) : std::malloc(bytes);
}

inline void *heap_try(std::size_t bytes, std::size_t align, hak_heap_t *heap) noexcept {
    return align > block_align ? hak_heap_aligned_alloc(heap, align, bytes) : hak_heap_malloc(heap, bytes);
}

/* By a function that gives NULL when it has no memory. */
template <class Source> void *block_insist(std::size_t bytes, std::size_t align, Source source, void *(*attempt)(std::size_t, std::size_t, Source) noexcept) {
    for (;;) {
        if (void *block = attempt(bytes, align, source)) return block;
        std::new_handler handler = std::get_new_handler();
#if defined(__cpp_exceptions)
        if (!handler) throw std::bad_alloc();
#else
        if (!handler) std::abort();
#endif
        handler();
    }
}

inline void *block_allocate(std::size_t bytes, std::size_t align, hak_site_t site) { return block_insist(bytes, align, site, block_try); }
inline void *heap_allocate(std::size_t bytes, std::size_t align, hak_heap_t *heap) { return block_insist(bytes, align, heap, heap_try); }

inline void block_free(void *block, std::size_t bytes, std::size_t align, hak_site_t site) noexcept {
    if (align > block_align) hakmem_free_aligned_sized(block, align, bytes);
    else if (!site || hak_usable_size(block) < bytes) hakmem_free_sized(block, bytes); // which says what is wrong
    else hak_free_at(block, site);
}

[[noreturn]] inline void length_refused() {
#if defined(__cpp_exceptions)
    throw std::bad_array_new_length();
#else
    std::abort();
#endif
}

} // namespace detail

/* Any block of it may be freed by it or by any other of the same site; the two are equal. It must outlive what is allocated by
 * containers that point at it, as they have it by address. */
class memory_resource : public std::pmr::memory_resource {
public:
    explicit memory_resource(hak_site_t site = 0) noexcept : site_(site) {}
    memory_resource(const memory_resource &) = default;
    memory_resource &operator=(const memory_resource &) = delete;

    hak_site_t site() const noexcept { return site_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override { return detail::block_allocate(bytes, align, site_); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override { detail::block_free(block, bytes, align, site_); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        if (this == &other) return true;
#if defined(__cpp_rtti)
        auto *same = dynamic_cast<const memory_resource *>(&other);
        return same && same->site_ == site_;
#else
        return false;
#endif
    }

    hak_site_t site_;
};

/* What allocator::allocate_at_least returns: std::allocation_result where the standard library has one. */
#if defined(__cpp_lib_allocate_at_least)
template <class Pointer> using allocation_result = std::allocation_result<Pointer>; /* libc++ 16 to 18 know no second parameter */
#else
template <class Pointer> struct allocation_result {
    Pointer ptr;
    std::size_t count;
};
#endif

namespace detail {

/* What allocators of T have in common: what becomes of them with a container, and how many bytes values take. */
template <class T> class allocator_of {
public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

protected:
    static std::size_t bytes_of(std::size_t count) {
        if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) length_refused();
        return count * sizeof(T);
    }
};

} // namespace detail

/* An allocator of the standard library's containers. Two are equal when their sites are; a container that is moved or swapped takes its
 * site along, a copy that is made of it has the same one, and one that is assigned to keeps its own. */
template <class T> class allocator : public detail::allocator_of<T> {
public:
    allocator() noexcept = default;
    explicit allocator(hak_site_t site) noexcept : site_(site) {} // or vector(HAK_SITE) would be a vector of so many values
    template <class U> allocator(const allocator<U> &other) noexcept : site_(other.site()) {}

    hak_site_t site() const noexcept { return site_; }

    /* Room for `count` values; std::bad_array_new_length above PTRDIFF_MAX bytes. */
    [[nodiscard]] T *allocate(std::size_t count) {
        return static_cast<T *>(detail::block_allocate(this->bytes_of(count), alignof(T), site_));
    }

    /* Room for `count` values or more: all that the block has is the caller's. deallocate() takes any number from the one asked for to
     * the one returned. */
    [[nodiscard]] allocation_result<T *> allocate_at_least(std::size_t count) {
        T *block = allocate(count);
        return {block, hak_usable_size(block) / sizeof(T)};
    }

    void deallocate(T *block, std::size_t count) noexcept { detail::block_free(block, count * sizeof(T), alignof(T), site_); }

private:
    hak_site_t site_ = 0;
};

template <class T, class U> bool operator==(const allocator<T> &a, const allocator<U> &b) noexcept { return a.site() == b.site(); }
template <class T, class U> bool operator!=(const allocator<T> &a, const allocator<U> &b) noexcept { return a.site() != b.site(); }

/* A heap of hakmem.h, destroyed with this object, blocks and all: what lives in them must be gone by then, or need no destructor. It may be
 * moved, and resources and allocators that were made of it go on with the heap, not with the object. Made over its limit or short of memory
 * it throws std::bad_alloc (without exceptions the program aborts). */
class heap {
public:
    explicit heap(std::size_t limit_bytes = 0) : heap_(hak_heap_new(limit_bytes)) {
        if (heap_) return;
#if defined(__cpp_exceptions)
        throw std::bad_alloc();
#else
        std::abort();
#endif
    }
    heap(heap &&other) noexcept : heap_(other.release()) {}
    heap &operator=(heap &&other) noexcept {
        if (this != &other) {
            hak_heap_destroy(heap_);
            heap_ = other.release();
        }
        return *this;
    }
    ~heap() { hak_heap_destroy(heap_); }

    hak_heap_t *get() const noexcept { return heap_; }
    hak_heap_t *release() noexcept { return std::exchange(heap_, nullptr); } /* it is the caller's to end */

    void clear() noexcept { hak_heap_clear(heap_); }
    /* The heap goes, and its blocks stay, as ordinary ones; nothing more may be had of this object. */
    void detach() noexcept { hak_heap_delete(release()); }

private:
    hak_heap_t *heap_;
};

/* Blocks of a heap, for pmr containers. The heap is not this object's: it must outlive what is allocated. Short of memory, or at the heap's
 * limit, as operator new: the new-handler, or std::bad_alloc. */
class heap_resource : public std::pmr::memory_resource {
public:
    explicit heap_resource(hak_heap_t *heap) noexcept : heap_(heap) {}
    explicit heap_resource(const heap &heap) noexcept : heap_(heap.get()) {}
    heap_resource(const heap_resource &) = default;
    heap_resource &operator=(const heap_resource &) = delete;

    hak_heap_t *get() const noexcept { return heap_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override { return detail::heap_allocate(bytes, align, heap_); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override { detail::block_free(block, bytes, align, 0); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        if (this == &other) return true;
#if defined(__cpp_rtti)
        auto *same = dynamic_cast<const heap_resource *>(&other);
        return same && same->heap_ == heap_;
#else
        return false;
#endif
    }

    hak_heap_t *heap_;
};

/* The same for containers without pmr; two are equal when their heaps are. A container that is moved or swapped takes its heap along, a copy
 * that is made of it has the same one, and one that is assigned to keeps its own. */
template <class T> class heap_allocator : public detail::allocator_of<T> {
public:
    explicit heap_allocator(hak_heap_t *heap) noexcept : heap_(heap) {}
    explicit heap_allocator(const heap &heap) noexcept : heap_(heap.get()) {}
    template <class U> heap_allocator(const heap_allocator<U> &other) noexcept : heap_(other.get()) {}

    hak_heap_t *get() const noexcept { return heap_; }

    /* Room for `count` values; std::bad_array_new_length above PTRDIFF_MAX bytes. */
    [[nodiscard]] T *allocate(std::size_t count) {
        return static_cast<T *>(detail::heap_allocate(this->bytes_of(count), alignof(T), heap_));
    }

    /* As of hakmem::allocator. */
    [[nodiscard]] allocation_result<T *> allocate_at_least(std::size_t count) {
        T *block = allocate(count);
        return {block, hak_usable_size(block) / sizeof(T)};
    }

    void deallocate(T *block, std::size_t count) noexcept { detail::block_free(block, count * sizeof(T), alignof(T), 0); }

private:
    hak_heap_t *heap_;
};

template <class T, class U> bool operator==(const heap_allocator<T> &a, const heap_allocator<U> &b) noexcept { return a.get() == b.get(); }
template <class T, class U> bool operator!=(const heap_allocator<T> &a, const heap_allocator<U> &b) noexcept { return a.get() != b.get(); }

} // namespace hakmem
#endif
