/* loaded.c - functions found in the libraries of the process, and led elsewhere.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/loaded.h"
#include "os/os.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *libc_names(const char *name) {
#ifdef __GLIBC__
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
#else
    void *libc = dlopen("libc.so", RTLD_NOW | RTLD_NOLOAD);
#endif
    assert_non_null(libc);
    return dlsym(libc, name);
}

static void a_function_is_found_wherever_it_is(void **state) {
    (void)state;
    assert_ptr_equal(hak_loaded_function("strtol_l"), libc_names("strtol_l"));
    assert_null(hak_loaded_function("no_library_has_this"));
    assert_null(hak_loaded_function(""));
}

static void the_next_one_is_behind_the_library_that_asks(void **state) {
    (void)state;
    void *libc = libc_names("a64l");
    assert_ptr_equal(hak_loaded_next("a64l", (const void *)the_next_one_is_behind_the_library_that_asks), libc);
    /* behind libc there is none: then the first one before, and libc itself is passed over */
    assert_null(hak_loaded_next("a64l", libc));
    assert_null(hak_loaded_next("no_library_has_this", libc));
    assert_ptr_equal(hak_loaded_next("a64l", NULL), libc); /* nobody holds the address */
}

#ifdef __GLIBC__ /* the only one whose names are led elsewhere (src/front/dlopen.c) */
static long other_a64l(const char *text) { return (long)strlen(text); }
static char *other_l64a(long number) { return number ? "some" : "none"; }

static bool refuse(enum hak_os_call call) { return call == HAK_OS_PROTECT; }

static bool redirect(const char *mark) {
    static const struct hak_loaded_name names[] = {
        { "a64l", (void *)other_a64l }, { "no_library_has_this", (void *)other_a64l }, { "l64a", (void *)other_l64a }
    };
    return hak_loaded_redirect(mark, names, 3);
}

/* One letter for each part of memory that libc's table of symbols lies in: may it be written, run? */
static void rights_of(const void *address, char rights[8]) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    strcpy(rights, "none");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char found[8];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, found) == 3 && (uintptr_t)address >= start && (uintptr_t)address < end)
            strcpy(rights, found);
    }
    fclose(maps);
}

static void names_lead_elsewhere_from_then_on(void **state) {
    (void)state;
    void *before = libc_names("a64l"), *other = libc_names("strtol_l");
    Dl_info about;
    void *symbol = NULL;
    assert_int_not_equal(dladdr1(before, &about, &symbol, RTLD_DL_SYMENT), 0);
    char rights[8], rights_after[8];
    rights_of(symbol, rights);
    assert_false(redirect("no_library_has_this"));
    assert_ptr_equal(libc_names("a64l"), before);

    hak_os_fault = refuse;
    assert_false(redirect("gnu_get_libc_version"));
    hak_os_fault = NULL;
    assert_ptr_equal(libc_names("a64l"), before);

    for (int i = 0; i < 2; i++) { /* once more changes nothing */
        assert_true(redirect("gnu_get_libc_version"));
        assert_ptr_equal(libc_names("a64l"), (void *)other_a64l);
        assert_ptr_equal(libc_names("l64a"), (void *)other_l64a);
        assert_ptr_equal(libc_names("strtol_l"), other);
        assert_ptr_equal(hak_loaded_function("a64l"), (void *)other_a64l);
    }
    rights_of(symbol, rights_after);
    assert_string_equal(rights_after, rights);
    assert_int_equal(((long (*)(const char *))libc_names("a64l"))("four"), 4);
    assert_int_equal(((long (*)(const char *))before)("/"), 1); /* lookups that were made stay as they are */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_is_found_wherever_it_is),
        cmocka_unit_test(the_next_one_is_behind_the_library_that_asks),
#ifdef __GLIBC__
        cmocka_unit_test(names_lead_elsewhere_from_then_on),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
