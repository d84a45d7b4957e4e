"""subproject.py - as a part of another CMake build (add_subdirectory, FetchContent) it is the library alone, and takes nothing over.

ctest: timeout=300 native
"""
import os
import re
import subprocess
import sys
import tempfile

from _law import ROOT, breach, finish, options, output

LISTS = """
cmake_minimum_required(VERSION 3.21)
project(consumer C CXX)
add_subdirectory("%s" hakmem)
add_custom_target(product)
foreach(form hakmem static)
    add_executable(with_${form} program.c)
    target_link_libraries(with_${form} hakmem::${form})
    install(TARGETS with_${form})
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/build_type "${CMAKE_BUILD_TYPE}")
"""
PROGRAM = """
#include <hakmem/hakmem.h>
#include <stdlib.h>

int main(void)
{
    void *block = malloc(100);
    size_t bytes = hak_usable_size(block); /* aborts if the block is not ours */
    free(block);
    return bytes >= 100 ? 0 : 1;
}
"""


def main():
    with open(os.path.join(options().build, "CMakeCache.txt"), encoding="utf-8") as file:
        cache = file.read()
    if not re.search(r"^CMAKE_BUILD_TYPE:\w+=Release$", cache, re.M) or not re.search(r"^CMAKE_C_COMPILER:\w+=\S*gcc\S*$|^CMAKE_C_COMPILER:\w+=\S*/cc$", cache, re.M):
        print("compiled once, for gcc's release build")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        build, prefix = os.path.join(folder, "build"), os.path.join(folder, "prefix")
        for name, text in (("CMakeLists.txt", LISTS % ROOT), ("program.c", PROGRAM)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        output("cmake", "-S", folder, "-B", build, "-DCMAKE_C_FLAGS=-fno-builtin", "-G", "Ninja")
        output("cmake", "--build", build)
        for form in ("hakmem", "static"):
            if (status := subprocess.run([os.path.join(build, "with_" + form)], check=False).returncode) != 0:
                breach(f"with hakmem::{form}: the program ended with {status}")
        output("cmake", "--install", build, "--prefix", prefix)
        installed = sorted(name for _, _, names in os.walk(prefix) for name in names)
        if installed != ["with_hakmem", "with_static"]:
            breach(f"installed with the consumer: {', '.join(installed)}")
        with open(os.path.join(build, "build_type"), encoding="utf-8") as file:
            if (kind := file.read()) != "":
                breach(f"the consumer's build type became {kind}")
        made = sorted(name for name in os.listdir(os.path.join(build, "hakmem")) if name in ("bench", "test", "hakmem", "share"))
        if made:
            breach(f"built besides the library: {', '.join(made)}")
    finish("as a part of another build")


main()
