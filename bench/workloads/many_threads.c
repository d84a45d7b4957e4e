/* many_threads.c - many threads that each hold one block of each of many classes.
 *
 * Arguments: threads 200, classes 30.
 * Sizes are 16, 48, 80, ... (16 + 32 i): 14,400 bytes a thread, 2.88 MB in all with the defaults. Growth of
 * resident memory is counted from all threads waiting (their stacks touched) to all of them holding
 * their blocks, written whole; growth_all_kb counts from before the first thread, stacks included. The times are of
 * all of it, births and deaths included.
 */
#include "work.h"

static pthread_barrier_t born, hold, held_all, leave;
static uint64_t class_count;

static void *thread_run(void *argument) {
    unsigned char tag = (unsigned char)(uintptr_t)argument;
    void *block[128];
    memset(block, 0, sizeof block);
    pthread_barrier_wait(&born);
    pthread_barrier_wait(&hold);
    for (uint64_t i = 0; i < class_count; i++) {
        block[i] = work_alloc(16 + 32 * i, (unsigned char)(tag + i));
        memset(block[i], (unsigned char)(tag + i), 16 + 32 * i);
    }
    pthread_barrier_wait(&held_all);
    pthread_barrier_wait(&leave);
    for (uint64_t i = 0; i < class_count; i++) work_free(block[i], 16 + 32 * i, (unsigned char)(tag + i));
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 200, 1, 10000);
    class_count = work_arg(argc, argv, 2, "classes", 30, 1, 128);
    work_args_end(argc, argv, 2);
    pthread_barrier_t *barrier[] = { &born, &hold, &held_all, &leave };
    for (unsigned i = 0; i < 4; i++) pthread_barrier_init(barrier[i], NULL, (unsigned)thread_count + 1);
    pthread_t *thread = work_table(thread_count * sizeof *thread);
    uint64_t resident_start_kb = work_resident_kb();
    struct work_span span = work_start();
    for (uint64_t i = 0; i < thread_count; i++) thread[i] = work_thread(thread_run, (void *)(uintptr_t)i);
    pthread_barrier_wait(&born);
    uint64_t resident_born_kb = work_resident_amid(&span);
    pthread_barrier_wait(&hold);
    pthread_barrier_wait(&held_all);
    uint64_t resident_kb = work_resident_amid(&span);
    pthread_barrier_wait(&leave);
    for (uint64_t i = 0; i < thread_count; i++) work_join(thread[i]);
    work_stop(&span);
    work_begin("many_threads", argc, argv);
    work_measured(thread_count * class_count, span);
    work_check(thread_count * class_count);
    work_number("live_bytes", thread_count * (16 * class_count + 16 * class_count * (class_count - 1)));
    work_number("growth_kb", resident_kb - resident_born_kb);
    work_number("growth_all_kb", resident_kb - resident_start_kb);
    work_number("resident_kb", resident_kb);
    work_number("resident_ended_kb", work_resident_kb());
    return work_end();
}
