/* region.c - the window and its metadata: addresses fit, nothing overlaps, parts are there once they are ready. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "base/word.h"
#include "memory/chunk.h"
#include "os/os.h"
#include "slab/slab.h"

#include <sys/mman.h>

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static void the_start_is_made_once(void **state) {
    (void)state;
    uintptr_t base = hak_window.base;
    assert_true(hak_region_start(1));
    assert_int_equal(hak_window.base, base);
    assert_int_equal(base % HAK_CHUNK_BYTES, 0);
    assert_true(hak_region.chunk_count > 0);
    assert_int_equal(hak_load_relaxed(hak_region.fork_page), 1);
}

static void granules_and_addresses_are_each_others(void **state) {
    (void)state;
    size_t count = hak_region.chunk_count * HAK_CHUNK_GRANULES;
    uint64_t dice = 17;
    for (unsigned i = 0; i < 10000; i++) {
        size_t granule = dice_next(&dice) % count;
        char *address = hak_granule_address(granule);
        REQUIRE(hak_granule_of(address) == granule && hak_granule_of(address + HAK_GRANULE_BYTES - 1) == granule);
        REQUIRE((char *)hak_granule_at(granule) + sizeof(struct hak_granule) * (granule + 1) == (char *)hak_window.base);
        size_t number = granule / HAK_CHUNK_GRANULES;
        struct hak_slab *slab = hak_slab_at(granule);
        REQUIRE(hak_slab_granule(slab) == granule && hak_slab_meta(slab) == hak_meta_at(number));
        REQUIRE((uintptr_t)hak_chunk_at(number) >= hak_unit_meta(number >> hak_region.unit_shift));
    }
}

static void metadata_and_records_do_not_overlap(void **state) {
    (void)state;
    size_t last = hak_region.chunk_count - 1, page = (size_t)1 << hak_region.page_shift;
    uintptr_t records = (uintptr_t)hak_granule_at(last * HAK_CHUNK_GRANULES + HAK_CHUNK_GRANULES - 1);
    assert_true((uintptr_t)hak_region.fork_page + page <= hak_region.meta);
    assert_true(hak_meta_at(last) + HAK_META_BYTES <= records);
    size_t chunks = hak_region.chunk_count < 5000 ? hak_region.chunk_count : 5000;
    for (size_t number = 1; number < chunks; number++) {
        REQUIRE(hak_meta_at(number) >= hak_meta_at(number - 1) + HAK_META_BYTES);
        REQUIRE(hak_meta_at(number) % page == 0);
        REQUIRE((uintptr_t)(hak_chunk_at(number) + 1) <= hak_meta_at(number >> hak_region.unit_shift << hak_region.unit_shift));
    }
}

static void ready_chunks_can_be_written_and_reads_are_zero(void **state) {
    (void)state;
    size_t unit = (size_t)1 << hak_region.unit_shift, first = 3 * unit - 1; /* over the end of a unit */
    assert_int_equal(hak_region_make_ready(first, 3), HAK_READY);
    for (size_t number = first; number < first + 3; number++) {
        assert_true(hak_unit_ready(number) && hak_chunk_ready(number));
        char *data = hak_granule_address(number * HAK_CHUNK_GRANULES);
        struct hak_granule *record = hak_granule_at(number * HAK_CHUNK_GRANULES + 63);
        for (size_t i = 0; i < HAK_CHUNK_BYTES; i += 4096) REQUIRE(data[i] == 0);
        data[0] = data[HAK_CHUNK_BYTES - 1] = 1;
        assert_null(hak_load_relaxed(&record->owner));
        *(char *)hak_meta_at(number) = 0;
        assert_true(hak_region_holds(data) && hak_region_holds(data + HAK_CHUNK_BYTES - 1));
    }
    assert_int_equal(hak_region_make_ready(first, 3), HAK_READY); /* and again */
    assert_false(hak_region_holds((char *)hak_window.base - 1));
    assert_false(hak_region_holds((char *)hak_window.base + hak_window.bytes));
    assert_false(hak_region_holds(&first));
}

static void what_is_past_the_window_is_refused(void **state) {
    (void)state;
    assert_int_equal(hak_region_make_ready(hak_region.chunk_count - 1, 2), HAK_READY_REFUSED);
    assert_int_equal(hak_region_make_ready(hak_region.chunk_count, 1), HAK_READY_REFUSED);
}

/* Another library's mapping lies where a chunk would come: the chunk is left out, its neighbours are not. */
static void foreign_mappings_are_left_alone(void **state) {
    (void)state;
    size_t number = (size_t)9 << hak_region.unit_shift;
    char *there = hak_granule_address(number * HAK_CHUNK_GRANULES + 5);
    char *foreign = mmap(there, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(foreign, there);
    *foreign = 42;
    assert_int_equal(hak_region_make_ready(number, 1), HAK_READY_ELSEWHERE);
    assert_false(hak_chunk_ready(number));
    assert_int_equal(hak_region_make_ready(number, 2), HAK_READY_ELSEWHERE);
    assert_int_equal(hak_region_make_ready(number + 1, 1), HAK_READY);
    assert_int_equal(*foreign, 42);
}

static bool refuse_all(enum hak_os_call call) {
    (void)call;
    return true;
}

static void a_refused_part_can_be_had_later(void **state) {
    (void)state;
    size_t number = (size_t)12 << hak_region.unit_shift;
    hak_os_fault = refuse_all;
    assert_int_equal(hak_region_make_ready(number, 20), HAK_READY_REFUSED);
    hak_os_fault = NULL;
    assert_int_equal(hak_region_make_ready(number, 20), HAK_READY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_start_is_made_once),
        cmocka_unit_test(granules_and_addresses_are_each_others),
        cmocka_unit_test(metadata_and_records_do_not_overlap),
        cmocka_unit_test(ready_chunks_can_be_written_and_reads_are_zero),
        cmocka_unit_test(what_is_past_the_window_is_refused),
        cmocka_unit_test(foreign_mappings_are_left_alone),
        cmocka_unit_test(a_refused_part_can_be_had_later),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
