#!/usr/bin/env python3
"""control_group.py - in a real control group that is nearly full free memory goes back before the kernel ends the program.

A group is made for it where that is permitted, which it is for root on a machine, and seldom in a container.
"""
import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Skip, Suite, compile_c

LIMIT_BYTES = 100 << 20
TREES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/unified", "memory.max"))


@contextlib.contextmanager
def group():
    """The folder of a new group with a limit; Skip where there can be none."""
    for tree, file in TREES:
        folder = f"{tree}/hakmem-test-{os.getpid()}"
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            if not os.path.exists(f"{folder}/{file}"):
                continue
            try:
                with open(f"{folder}/{file}", "w") as limit:
                    limit.write(str(LIMIT_BYTES))
            except OSError as error:
                raise Skip(f"{folder}/{file} cannot be set: {error.strerror}") from None
            yield folder
            return
        finally:
            os.rmdir(folder)
    raise Skip("no control group with a memory limit can be made here")


def swap_forbid(folder):
    """What would not fit must not go to a disk instead."""
    with open("/proc/swaps") as swaps:
        if len(swaps.readlines()) < 2:
            return
    for file, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(LIMIT_BYTES))):
        try:
            with open(f"{folder}/{file}", "w") as limit:
                limit.write(value)
            return
        except OSError:
            continue
    raise Skip("this machine swaps, and a group cannot be kept from it")


def main():
    suite = Suite("control_group", __doc__.split("\n")[0])
    grow = compile_c(suite, "group_grow")

    def ends_well(is_expected, **env):
        def judge():
            with group() as folder:
                swap_forbid(folder)

                def enter():
                    with open(f"{folder}/cgroup.procs", "w") as procs:
                        procs.write(str(os.getpid()))
                done = suite.run([grow], env=dict(HAKMEM_FREE_MAX_MB="32", **env), before=enter)
            return None if (done.status == 0) == is_expected and (done.status in (0, -9)) else done.brief()
        return judge
    suite.case("100 MiB: 92 in use and 24 that were free come to an end", ends_well(True))
    suite.case("100 MiB: the same by a soft limit that the user set", ends_well(True, HAKMEM_LIMIT_SOFT_MB="90", HAKMEM_CGROUP="0"))
    suite.case("100 MiB: without both the kernel ends it", ends_well(False, HAKMEM_CGROUP="0"))
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
