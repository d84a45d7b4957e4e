"""workloads.py - the benchmark's workloads in C, built for musl: under its malloc and under libhakmem.so, preloaded, they do
the same work (test/bench/workloads.py).

Without those that need a C++ library, and without the one that starts programs of the system, which are glibc's.
"""
import os
import sys

from _musl import ROOT, arguments, compiler

build = arguments().build
os.environ["CC"] = compiler(build)
program = os.path.join(ROOT, "test", "bench", "workloads.py")
os.execv(sys.executable, [sys.executable, program, "--build", build, "--without", "cxx_containers", "cxx_growth", "launches"])
