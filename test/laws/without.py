"""without.py - deleting src/learn, src/watch or both, with their lines in start-up, leaves a working allocator.

A copy of the sources, less the folder and the lines of front/start.c that name it, is built and runs a program. What else
names the folder would not compile.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

from _law import breach, copy_without, finish, options, output

PROGRAM = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *seed)
{
    static __thread char *block[512];
    unsigned dice = (unsigned)(size_t)seed;
    for (int i = 0; i < 200000; i++) {
        unsigned k = (dice = dice * 1103515245u + 12345u) >> 16 & 511;
        size_t bytes = (dice >> 8) % (i % 64 ? 2000 : 300000) + 1;
        if (block[k] && *block[k] != 7) abort();
        free(block[k]);
        block[k] = realloc(malloc(bytes), bytes * 2);
        memset(block[k], 7, bytes * 2 < 64 ? bytes * 2 : 64);
    }
    return NULL;
}
int main(void)
{
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, work, (void *)(size_t)(i + 1));
    work((void *)9);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    pid_t child = fork();
    if (child == 0) { work((void *)5); _exit(0); }
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
"""


def build_without(layers, folder):
    layer = " and ".join(layers)
    copy_without(layers, folder)
    sources = glob.glob(os.path.join(folder, "src", "*", "*.c")) + glob.glob(os.path.join(folder, "src", "*", "*.cc"))
    flags = ["-O1", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-fno-exceptions",
             "-fno-rtti", "-fno-strict-aliasing", "-fno-math-errno", "-D_GNU_SOURCE", f"-I{folder}/src", f"-I{folder}/include", "-w"]
    objects = []
    for at, source in enumerate(sources):
        objects.append(os.path.join(folder, f"{at}.o"))
        command = ["cc", "-std=gnu11"] if source.endswith(".c") else ["c++", "-std=gnu++17"]
        done = subprocess.run([*command, *flags, "-c", source, "-o", objects[-1]], capture_output=True, text=True)
        if done.returncode:
            breach(f"without src/{layer}: {os.path.relpath(source, folder)} does not compile:\n{done.stderr[:2000]}")
            return None
    library = os.path.join(folder, "libhakmem.so")
    done = subprocess.run(["cc", "-shared", "-Wl,-Bsymbolic-functions", "-Wl,--no-undefined", "-o", library, *objects, "-pthread"],
                          capture_output=True, text=True)
    if done.returncode:
        breach(f"without src/{layer}: it does not link:\n{done.stderr[:2000]}")
        return None
    return library


def main():
    options()
    if shutil.which("cc") is None or shutil.which("c++") is None:
        print("a compiler is missing")
        sys.exit(77)
    for layers in (["learn"], ["watch"], ["watch", "learn"]):
        with tempfile.TemporaryDirectory() as folder:
            library = build_without(layers, folder)
            if not library:
                continue
            source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
            with open(source, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            output("cc", "-O1", "-fno-builtin", "-pthread", "-o", program, source)
            done = subprocess.run([program], env=dict(os.environ, LD_PRELOAD=library), capture_output=True, text=True)
            if done.returncode or done.stderr:
                breach(f"without {layers}: the program ends with {done.returncode}\n{done.stderr}")
    finish("without learn, watch, both: built, runs")


main()
