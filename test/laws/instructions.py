"""instructions.py - instructions per malloc and per free, slow paths included, counted by callgrind.

256 mallocs, then 256 frees, over and over; counted once the class has its slab. callgrind counts the same for
the same program and library whatever else the machine does, but for what the clock brings: on a busy machine the program
may live a second, after which learning begins once, 130,000 instructions. So the least of up to twelve runs counts.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from _law import breach, finish, options, output

ROUNDS = 400
TRIES = 12
# bytes: (malloc, free) instructions per operation
LIMITS = {64: (20, 32), 1024: (35, 32)}

PROGRAM = r"""
#include <stdlib.h>

enum { BATCH = 256 };
static void *block[BATCH];

/* What the loop costs by itself is measured with these and taken off; each is one instruction, its ret. */
__asm__(".text\nno_malloc:\n.globl no_malloc\nret\nno_free:\n.globl no_free\nret\n");
void *no_malloc(size_t bytes);
void no_free(void *ptr);

__attribute__((noinline)) void batch_of_mallocs(void *(*allocate)(size_t), size_t bytes)
{
    for (int i = 0; i < BATCH; i++)
        block[i] = allocate(bytes);
}
__attribute__((noinline)) void batch_of_frees(void (*release)(void *))
{
    for (int i = 0; i < BATCH; i++)
        release(block[i]);
}
__attribute__((noinline)) void counted_mallocs(void *(*allocate)(size_t), size_t bytes)
{
    batch_of_mallocs(allocate, bytes);
}
__attribute__((noinline)) void counted_frees(void (*release)(void *))
{
    batch_of_frees(release);
}

int main(int count, char **words)
{
    size_t bytes = strtoul(words[1], NULL, 10);
    int rounds = atoi(words[2]), empty = atoi(words[3]);
    void *(*allocate)(size_t) = empty ? no_malloc : malloc;
    void (*release)(void *) = empty ? no_free : free;
    (void)count;
    for (int i = 0; i < 20; i++) {
        batch_of_mallocs(allocate, bytes);
        batch_of_frees(release);
    }
    for (int i = 0; i < rounds; i++) {
        counted_mallocs(allocate, bytes);
        counted_frees(release);
    }
    return 0;
}
"""


def collected(folder, program, library, function, *words):
    log = os.path.join(folder, "log")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}",
               f"--toggle-collect={function}", program, *map(str, words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=dict(os.environ, LD_PRELOAD=library))
    with open(log, encoding="utf-8") as file:
        text = file.read()
    found = re.search(r"Collected\s*:\s*(\d+)", text)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}{text}")
    return int(found.group(1))


def main():
    library = os.path.abspath(os.path.join(options().build, "libhakmem.so"))
    if shutil.which("valgrind") is None:
        print("valgrind is missing")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        output("cc", "-O1", "-fno-builtin", "-o", program, source)
        calls = ROUNDS * 256
        for bytes_, limits in LIMITS.items():
            for function, limit in zip(("malloc", "free"), limits):
                where = f"counted_{function}s"
                empty = collected(folder, program, library, where, bytes_, ROUNDS, 1)
                each = limit + 1
                for _ in range(TRIES):
                    full = collected(folder, program, library, where, bytes_, ROUNDS, 0)
                    each = min(each, (full - empty) / calls + 1)  # the ret of the empty one
                    if each <= limit:
                        break
                print(f"{function} of {bytes_} bytes: {each:.2f} instructions (limit {limit})")
                if each > limit:
                    breach(f"{function} of {bytes_} bytes: {each:.2f} instructions; the limit is {limit}")
    finish("instructions per operation, visits included")


main()
