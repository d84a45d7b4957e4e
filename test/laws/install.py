"""install.py - what is installed is enough to build and run programs against, in every way we offer.

Installs into a temporary folder and builds a small program there: with find_package (shared and static), with
pkg-config, with hakmem.o first on the link line, and one in C++. Each checks that its malloc is ours.
"""
import os
import re
import shutil
import sys
import tempfile

from _law import ROOT, breach, finish, options, output

PROGRAM = r"""
#include <hakmem/hakmem.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *text = malloc(100);
    if (text == NULL || strcmp(hak_version(), HAKMEM_VERSION) != 0)
        return 1;
    memset(text, 'x', 100);
    if (hak_usable_size(text) < 100) /* aborts if the block is not ours */
        return 2;
    void *at_least = hak_alloc_at_least(1000).ptr;
    free(at_least);
    free(text);
    return 0;
}
"""
PROGRAM_CXX = r"""
#include <hakmem/memory_resource.hpp>
#include <new>
#include <string>
#include <vector>

int main()
{
    std::vector<std::string> words(1000, "longer than what fits into the string itself");
    hakmem::memory_resource named(HAK_SITE);
    std::pmr::vector<int> numbers(1000, 1, &named);
    struct hak_site_stats row;
    if (hak_site_stats(&row, 1) != 1 || row.site != named.site() || row.alloc_bytes < 1000 * sizeof(int))
        return 4;
    void *raw = ::operator new(100);
    size_t bytes = hak_usable_size(raw);
    ::operator delete(raw);
    try {
        raw = ::operator new(~size_t(0) / 4);
        return 3;
    } catch (const std::bad_alloc &) {
    }
    return bytes >= 100 && words.size() == 1000 ? 0 : 1;
}
"""
# A plugin with the static library is closed while a thread that used it lives on.
PLUGIN = r"""
#include <hakmem/hakmem.h>

void plugin_use(void) { hak_free_at(hak_alloc_at(100, HAK_SITE), HAK_SITE); }
"""
HOST = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

static sem_t used, closed;
static void (*plugin_use)(void);

static void *thread_run(void *unused)
{
    plugin_use();
    sem_post(&used);
    sem_wait(&closed);
    return unused;
}

int main(int argument_count, char **arguments)
{
    pthread_t thread;
    void *plugin = dlopen(arguments[argument_count - 1], RTLD_NOW);
    if (plugin == NULL)
        return 1;
    plugin_use = (void (*)(void))dlsym(plugin, "plugin_use");
    sem_init(&used, 0, 0);
    sem_init(&closed, 0, 0);
    if (plugin_use == NULL || pthread_create(&thread, NULL, thread_run, NULL) != 0)
        return 2;
    sem_wait(&used);
    dlclose(plugin);
    sem_post(&closed);
    return pthread_join(thread, NULL);
}
"""
LISTS = """
cmake_minimum_required(VERSION 3.16)
project(consumer C CXX)
find_package(hakmem 0.1 REQUIRED)
add_executable(shared program.c)
target_link_libraries(shared hakmem::hakmem)
add_executable(static program.c)
target_link_libraries(static hakmem::static)
add_executable(cxx program_cxx.cc)
target_link_libraries(cxx hakmem::hakmem)
add_executable(cxx_static program_cxx.cc)
target_link_libraries(cxx_static hakmem::static)
add_library(plugin MODULE plugin.c)
target_link_libraries(plugin hakmem::static)
add_executable(host host.c)
target_link_libraries(host pthread dl)
"""


def main():
    build = os.path.abspath(options().build)
    for program in ("cmake", "pkg-config"):
        if shutil.which(program) is None:
            print(f"{program} is missing")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        prefix, source = os.path.join(folder, "prefix"), os.path.join(folder, "consumer")
        output("cmake", "--install", build, "--prefix", prefix)
        os.mkdir(source)
        for name, text in (("program.c", PROGRAM), ("program_cxx.cc", PROGRAM_CXX), ("plugin.c", PLUGIN),
                           ("host.c", HOST), ("CMakeLists.txt", LISTS)):
            with open(os.path.join(source, name), "w", encoding="utf-8") as file:
                file.write(text)
        output("cmake", "-S", source, "-B", source + "/build", "-DCMAKE_PREFIX_PATH=" + prefix,
               "-DCMAKE_C_FLAGS=-fno-builtin", "-DCMAKE_CXX_FLAGS=-fno-builtin")
        output("cmake", "--build", source + "/build")
        programs = [os.path.join(source, "build", name) for name in ("shared", "static", "cxx", "cxx_static")]

        pc_files = [os.path.join(where, name) for where, _, names in os.walk(prefix) for name in names
                    if name == "hakmem.pc"]
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(pc_files[0]))
        flags = output("pkg-config", "--cflags", "--libs", "hakmem", env=environment).split()
        if output("pkg-config", "--modversion", "hakmem", env=environment).strip() not in open(
                os.path.join(ROOT, "include", "hakmem", "hakmem.h"), encoding="utf-8").read():
            breach("hakmem.pc: another version than hakmem.h's")
        libdir = [flag[2:] for flag in flags if flag.startswith("-L")][0]
        compile_ = ["cc", "-O1", "-fno-builtin", os.path.join(source, "program.c")]
        by_pc, by_object = os.path.join(folder, "by_pc"), os.path.join(folder, "by_object")
        output(*compile_, *flags, "-Wl,-rpath," + libdir, "-o", by_pc)
        output(*compile_, "-I" + os.path.join(prefix, "include"), os.path.join(libdir, "hakmem", "hakmem.o"),
               "-pthread", "-o", by_object)
        whole = os.path.join(folder, "whole")
        output(*compile_, "-I" + os.path.join(prefix, "include"), os.path.join(libdir, "libhakmem.a"), "-static",
               "-pthread", "-o", whole)
        programs += [by_pc, by_object, whole]

        for program in programs:
            output(program)  # its failure ends the test with what it said
        output(os.path.join(source, "build", "host"), os.path.join(source, "build", "libplugin.so"))
        linked = output("ldd", by_pc)
        if not re.search(r"libhakmem\.so\.0 => " + re.escape(libdir), linked):
            breach(f"the program linked by pkg-config does not load the installed library:\n{linked}")
        if "hakmem" in output("ldd", programs[1]):
            breach("the program linked with hakmem::static loads the shared library")
        if os.path.exists(os.path.join(build, "hakmem")):
            for file in ("bin/hakmem", "share/man/man1/hakmem.1", "share/man/man1/hakmem-run.1", "share/bash-completion/completions/hakmem"):
                if not os.path.exists(os.path.join(prefix, file)):
                    breach(f"{file} is not installed")
    finish(f"install: {len(programs)} programs built and run")


main()
