/* module.c - addresses become places in files that can be found again in another process.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/module.h"
#include "os/os.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static struct hak_module modules[64];

static const struct hak_module *around(uintptr_t address, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (address >= modules[i].start && address < modules[i].end) return &modules[i];
    return NULL;
}

static void the_program_comes_first_and_libraries_follow(void **state) {
    (void)state;
    size_t count = hak_modules(modules, 64);
    assert_true(count >= 2);
    assert_true(modules[0].id_bytes >= 8);
    assert_ptr_equal(around((uintptr_t)&the_program_comes_first_and_libraries_follow, count), &modules[0]);
    const struct hak_module *libc = around((uintptr_t)getpid, count);
    assert_non_null(libc);
    assert_true(libc != &modules[0]);
    uint64_t name = 0;
    for (unsigned i = 0; i < 8; i++) name = name << 8 | modules[0].id[i];
    assert_true(hak_module_name(&modules[0]) == name && name != 0);
    assert_int_equal(hak_modules(modules, 1), 1);
    assert_int_equal(hak_modules(modules, 0), 0);
}

/* The same program once more: other addresses, the same id and offset. */
static void ids_and_offsets_hold_in_another_process(void **state) {
    (void)state;
    char path[64], line[256], mine[256];
    hak_modules(modules, 64);
    snprintf(mine, sizeof mine, "%016lx %lx\n", (unsigned long)hak_module_name(&modules[0]),
             (unsigned long)((uintptr_t)&ids_and_offsets_hold_in_another_process - modules[0].base));
    snprintf(path, sizeof path, "/proc/%d/exe --place", (int)getpid());
    FILE *other = popen(path, "r");
    assert_non_null(other);
    assert_non_null(fgets(line, sizeof line, other));
    assert_int_equal(pclose(other), 0);
    assert_string_equal(line, mine);
}

static void the_programs_name_has_only_harmless_letters(void **state) {
    (void)state;
    char name[65], cut[5];
    hak_program_name(name, sizeof name);
    assert_non_null(strstr(name, "module"));
    hak_program_name(cut, sizeof cut);
    assert_int_equal(strlen(cut), 4);
    for (const char *c = name; *c; c++) assert_true(*c != '/' && *c != ' ' && *c > ' ' && *c < 127);
}

static void a_limit_of_memory_is_a_number_or_none(void **state) {
    (void)state;
    assert_true(hak_os_memory_limit() >= 1 << 20);
    struct hak_os_usage first = hak_os_usage();
    volatile unsigned work = 0;
    for (unsigned i = 0; i < 100000000; i++) work += i;
    assert_true(work != 1);
    struct hak_os_usage second = hak_os_usage();
    assert_true(second.cpu_us > first.cpu_us && second.fault_count >= first.fault_count);
}

/* Last: from here on the process takes itself for one. */
static void a_forked_child_learns_the_same_from_files(void **state) {
    (void)state;
    struct rlimit limit = { (rlim_t)1 << 56, RLIM_INFINITY };
    char name[16], again[16];
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_int_equal(prctl(PR_SET_NAME, "x) R 7 (y"), 0); /* as /proc/self/stat has it, between brackets */
    hak_os_thread_name(name);
    size_t most = hak_os_address_limit();
    struct hak_os_usage asked = hak_os_usage();
    unsigned processors = hak_os_processors();
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(getpid(), sizeof set, &set), 0);
    assert_int_equal(processors, CPU_COUNT(&set));
    hak_os_forked();
    assert_int_equal(hak_os_processors(), processors);
    struct hak_os_usage read = hak_os_usage();
    hak_os_thread_name(again);
    assert_string_equal(again, name);
    assert_string_equal(again, "x) R 7 (y");
    assert_int_equal(hak_os_address_limit(), most);
    assert_int_equal(most, (size_t)1 << 56);
    limit.rlim_cur = (rlim_t)1 << 55;
    assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
    assert_int_equal(hak_os_address_limit(), (size_t)1 << 55); /* the lower one */
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_DATA, &limit);
    assert_in_range(read.fault_count, asked.fault_count, asked.fault_count + 100);
    assert_in_range(read.cpu_us, asked.cpu_us, asked.cpu_us + 1000000);
    int fds[2], file = memfd_create("file", 0);
    assert_int_equal(pipe(fds), 0);
    limit.rlim_cur = 1000;
    assert_true(hak_os_file_takes(file, 5000));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(hak_os_file_takes(file, 1000) && !hak_os_file_takes(file, 1001));
    assert_int_equal(write(file, "0123456789", 10), 10);
    assert_true(hak_os_file_takes(file, 990) && !hak_os_file_takes(file, 991) && !hak_os_file_takes(file, SIZE_MAX));
    assert_true(hak_os_file_takes(fds[1], 5000));
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    setrlimit(RLIMIT_AS, &limit);
}

static bool is_of_process;
static const char *expanded(const char *path) {
    static char bytes[256];
    struct hak_text text = HAK_TEXT(bytes);
    is_of_process = hak_path_expand(&text, path);
    assert_true(hak_text_end(&text) < sizeof bytes);
    return bytes;
}

static void a_path_names_the_process_and_the_program(void **state) {
    (void)state;
    char name[64], wanted[256];
    hak_program_name(name, sizeof name);
    snprintf(wanted, sizeof wanted, "/tmp/%s-%d-%d.%%x%%", name, (int)getpid(), (int)getpid());
    assert_string_equal(expanded("/tmp/%e-%p-%p.%x%"), wanted);
    assert_true(is_of_process);
    assert_string_equal(expanded("%%p%%e"), "%p%e");
    assert_false(is_of_process);
    assert_string_equal(expanded(""), "");
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "--place") == 0) {
        hak_modules(modules, 64);
        printf("%016lx %lx\n", (unsigned long)hak_module_name(&modules[0]),
               (unsigned long)((uintptr_t)&ids_and_offsets_hold_in_another_process - modules[0].base));
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_comes_first_and_libraries_follow),
        cmocka_unit_test(ids_and_offsets_hold_in_another_process),
        cmocka_unit_test(the_programs_name_has_only_harmless_letters),
        cmocka_unit_test(a_limit_of_memory_is_a_number_or_none),
        cmocka_unit_test(a_forked_child_learns_the_same_from_files),
        cmocka_unit_test(a_path_names_the_process_and_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
