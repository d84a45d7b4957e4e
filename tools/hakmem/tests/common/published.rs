//! A stand-in for the library that publishes what a recording would: two call sites, one that grows and one that
//! pins, in the structs of src/watch/published.h. It takes requests as visits do; STAND_IN_DEAF keeps it from it until
//! SIGUSR1, and it was held up by an earlier recording. With STAND_IN_EARLIER half of what the one that grows left is of
//! an earlier recording; with STAND_IN_GENERATED that one lies in no file.

use super::{compile, folder};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include "watch/published.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
struct hak_published hakmem_published;
const char *hak_version(void) { return "7.8.9"; }
static struct hak_stack_row stacks[3];
static struct hak_live_row live[64];
static struct hak_thread_row threads[2];
static struct hak_time_row timeline[8];
static struct hak_class_row classes[3];
static uint64_t frames[8], counters[2], top;
static char names[2][32] = {"visit", "visit_new_slab"};
static uint64_t now(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t bits(double value) { uint64_t word; memcpy(&word, &value, 8); return word; }
__attribute__((noinline)) void *stand_in_outer(void *(*f)(void)) { void *p = f(); __asm__ volatile(".skip 32, 0x90" ::: "memory"); return p; }
__attribute__((noinline)) void *stand_in_leak(void) { void *p = malloc(64); __asm__ volatile(".skip 32, 0x90" ::: "memory"); return p; }
__attribute__((noinline)) void *stand_in_pin(void) { void *p = malloc(48); __asm__ volatile(".skip 32, 0x90" ::: "memory"); return p; }
static void table(struct hak_table *t, void *rows, uint64_t bytes, uint64_t capacity, uint64_t used) {
    *t = (struct hak_table){(uint64_t)(uintptr_t)rows, bytes, capacity, used};
}
static void start(void) {
    struct hak_published *p = &hakmem_published;
    p->start_ns = now(CLOCK_MONOTONIC) - 16000000000u; /* so that births can be spread */
    p->start_realtime_ns = now(CLOCK_REALTIME) - 16000000000u;
    p->rate_bytes = p->recorded_rate_bytes = p->control.rate_bytes ? p->control.rate_bytes : 524288;
    for (int i = 0; i < 32; i++) { /* the leak: one in each half second; the pin: all at the start */
        live[i] = (struct hak_live_row){.sequence = 2, .state = 1, .stack = 1, .thread = 1, .requested_bytes = 60,
            .block_bytes = 64, .rate_bytes = p->rate_bytes, .weight = bits(1000), .class_index = 1,
            .birth_ns = p->start_ns + (uint64_t)i * 500000000u};
        if (getenv("STAND_IN_EARLIER") && i % 2) live[i].birth_ns = p->start_ns - 1;
        live[i + 32] = live[i];
        live[i + 32].stack = 2, live[i + 32].class_index = 2, live[i + 32].block_bytes = 48;
        live[i + 32].requested_bytes = 40, live[i + 32].birth_ns = p->start_ns + 1;
    }
    for (int i = 0; i < 8; i++)
        timeline[i] = (struct hak_time_row){.time_ns = p->start_ns + (uint64_t)i * 2000000000u,
            .resident_bytes = 10u << 20, .live_bytes = (uint64_t)i << 20, .alloc_bytes = (uint64_t)i << 22, .heap_count = 1};
    p->is_on = 1;
}
static volatile sig_atomic_t is_deaf;
static void wake(int number) { (void)number; is_deaf = 0; }
static void *serve(void *unused) {
    struct hak_control *c = &hakmem_published.control;
    (void)unused;
    while (is_deaf) usleep(1000);
    for (;; usleep(1000)) {
        uint32_t request = __atomic_load_n(&c->request, __ATOMIC_ACQUIRE);
        if (request == c->seen) { stacks[1].sequence += 2; continue; }
        if (c->command == HAK_CONTROL_START) start();
        if (c->command == HAK_CONTROL_STOP) hakmem_published.is_on = 0, hakmem_published.rate_bytes = 0;
        c->result = 0;
        __atomic_store_n(&c->seen, request, __ATOMIC_RELEASE);
    }
    return NULL;
}
__attribute__((constructor)) static void begin(void) {
    struct hak_published *p = &hakmem_published;
    if (getenv("STAND_IN_SILENT")) return;
    uint64_t inside[3] = {(uintptr_t)stand_in_leak + 12, (uintptr_t)stand_in_pin + 12, (uintptr_t)stand_in_outer + 12};
    if (getenv("STAND_IN_GENERATED")) inside[0] = UINT64_C(0x600000000010);
    frames[0] = inside[0], frames[1] = inside[2], frames[2] = inside[1], frames[3] = inside[2];
    stacks[1] = (struct hak_stack_row){.sequence = 2, .frame_count = 2, .frame_first = 0, .alloc_samples = 64, .free_samples = 32,
        .alloc_count = 64000 * 1024, .alloc_bytes = 64000 * 60, .free_count = 32000 * 1024, .free_bytes = 32000 * 60,
        .alloc_variance = bits(64 * 1000. * 999. * 3600.), .temporary_count = 16000 * 1024};
    stacks[1].age_count[3] = 32000 * 1024;
    stacks[2] = (struct hak_stack_row){.sequence = 2, .frame_count = 2, .frame_first = 2, .alloc_samples = 32,
        .alloc_count = 32000 * 1024, .alloc_bytes = 32000 * 40, .alloc_variance = bits(32 * 1000. * 999. * 1600.)};
    threads[1] = (struct hak_thread_row){.sequence = 2, .tid = (uint32_t)getpid(), .name = "worker", .alloc_samples = 96,
        .alloc_bytes = 5120000};
    classes[1] = (struct hak_class_row){.block_bytes = 64, .capacity = 1024, .word_count = 16, .slab_bytes = 65536};
    classes[2] = (struct hak_class_row){.block_bytes = 48, .capacity = 1365, .word_count = 22, .slab_bytes = 65536};
    counters[0] = 70, counters[1] = 3;
    p->version = HAK_PUBLISHED_VERSION, p->bytes = sizeof *p, p->pid = (uint32_t)getpid();
    memcpy(p->library_version, "7.8.9", 6);
    table(&p->stacks, stacks, sizeof stacks[0], 3, 3), table(&p->frames, frames, 8, 8, 4);
    table(&p->live, live, sizeof live[0], 64, 64), table(&p->threads, threads, sizeof threads[0], 2, 2);
    table(&p->timeline, timeline, sizeof timeline[0], 8, 8), table(&p->classes, classes, sizeof classes[0], 3, 3);
    table(&p->counter_names, names, 32, 2, 2), table(&p->counters, counters, 8, 2, 2);
    p->geometry.chunk_top_address = (uintptr_t)&top, p->geometry.page_shift = 12, p->geometry.granule_shift = 16;
    p->geometry.meta = (uintptr_t)&top, p->geometry.class_count = 3;
    p->samples = 96;
    p->magic = HAK_PUBLISHED_MAGIC;
    if (getenv("STAND_IN_RECORDS")) start();
    pthread_t thread;
    if (getenv("STAND_IN_DEAF")) is_deaf = 1, p->held_count = 7, p->held_ns = p->held_max_ns = 2570000, signal(SIGUSR1, wake);
    pthread_create(&thread, NULL, serve, NULL);
}
"#;

fn built(name: &str, flags: &[&str]) -> PathBuf {
    let folder = folder(name);
    let headers = format!("-I{}/../../src", env!("CARGO_MANIFEST_DIR"));
    let flags = [&["-shared", "-fPIC", "-O1", "-pthread", "-Wl,--build-id", &headers], flags].concat();
    assert!(compile(&folder, "libhakmem.so", SOURCE, &flags));
    folder.join("libhakmem.so")
}

/// The publishing stand-in, with debug information.
pub fn publishing() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built("publishing", &["-g"]))
}

/// The same, stripped, and its debug information in a file of its own elsewhere: (library, debug file, build id).
pub fn stripped() -> (PathBuf, PathBuf, String) {
    let whole = built("publishing-stripped", &["-g"]);
    let (debug, stripped) =
        (whole.with_extension("debug"), whole.with_file_name("small").join("libhakmem.so"));
    std::fs::create_dir_all(stripped.parent().unwrap()).unwrap();
    let run = |arguments: &[&std::ffi::OsStr]| {
        assert!(Command::new("objcopy").args(arguments).status().unwrap().success());
    };
    run(&["--only-keep-debug".as_ref(), whole.as_ref(), debug.as_ref()]);
    run(&["--strip-all".as_ref(), whole.as_ref(), stripped.as_ref()]);
    let notes = Command::new("readelf").arg("-n").arg(&whole).output().unwrap();
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let id = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    (stripped, debug, id)
}

/// A process that sleeps with a library preloaded; killed when dropped.
pub struct Sleeper(pub Child);

impl Sleeper {
    pub fn with(library: Option<&Path>, variables: &[&str]) -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg("100").stdin(Stdio::null()).env_remove("LD_PRELOAD");
        library.map(|library| command.env("LD_PRELOAD", library));
        variables.iter().for_each(|name| {
            command.env(name, "1");
        });
        let sleeper = Sleeper(command.spawn().unwrap());
        // exec and the loader's work.
        let is_up = |text: String| match library {
            Some(library) => text.contains(library.to_str().unwrap()) && text.contains("libc.so"),
            None => text.contains("libc.so"),
        };
        for _ in 0..4000 {
            let pid = sleeper.pid();
            let in_sleep = std::fs::read_to_string(format!("/proc/{pid}/wchan"))
                .is_ok_and(|at| at.contains("nanosleep"));
            if std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(is_up) && in_sleep {
                return sleeper;
            }
            if std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(is_up)
                && std::fs::read_to_string(format!("/proc/{pid}/syscall"))
                    .is_ok_and(|call| !call.starts_with("running"))
            {
                std::thread::sleep(std::time::Duration::from_millis(50));
                return sleeper;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("the process does not come up");
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
