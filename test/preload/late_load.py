#!/usr/bin/env python3
"""late_load.py - the library by dlopen in a program that knows nothing of it, unloaded again, and a second copy."""
import shutil
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, compile_c, need


def main():
    suite = Suite("late_load", __doc__)
    host = compile_c(suite, "late_host")
    copy = os.path.join(suite.folder, "libhakmem_copy.so")
    shutil.copy(suite.library, copy)
    suite.works("dlopen and dlclose", lambda: [host, suite.library], says=b"fine", preload=False)
    suite.works("dlopen of two copies", lambda: [host, suite.library, copy], says=b"fine", preload=False)
    suite.works("dlopen of a copy in a preloaded program", lambda: [host, copy], says=b"fine")
    first = compile_c(suite, "late_threads")
    suite.works("dlopen, then first calls of eight threads at once", lambda: [first, suite.library], says=b"fine", preload=False)
    suite.works("dlopen in python", lambda: [need("python3"), "-c", f"""
import ctypes
library = ctypes.CDLL({suite.library!r})
library.hak_alloc_at.restype = ctypes.c_void_p
library.hak_alloc_at.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
library.hak_free_at.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
blocks = [library.hak_alloc_at(i * 10, 0) for i in range(5000)]
assert len(set(blocks)) == 5000
for block in blocks: library.hak_free_at(block, 0)
text = ctypes.create_string_buffer(200000)
library.hak_stats_json(text, 200000)
import json; print('classes', len(json.loads(text.value)['classes']))
"""], says=b"classes", preload=False)

    def two_preloads():
        # Somebody preloads it twice, by two names.
        done = suite.run([need("sqlite3"), ":memory:", "SELECT 6 * 7"], preload=False,
                         env={"LD_PRELOAD": f"{suite.library}:{copy}"})
        return None if done.status == 0 and done.out.strip() == b"42" else done.brief()
    suite.case("two copies preloaded", two_preloads)

    def needed():
        # No C++ library may come with it, and thread-local storage stays within 64 bytes.
        readelf = need("readelf")
        dynamic = suite.run([readelf, "-d", suite.library], preload=False).out.decode()
        if "libstdc++" in dynamic:
            return "libhakmem.so needs libstdc++"
        segments = suite.run([readelf, "-lW", suite.library], preload=False).out.decode()
        bytes_used = [int(line.split()[5], 16) for line in segments.splitlines() if line.split()[:1] == ["TLS"]]
        return None if sum(bytes_used) <= 64 else f"{bytes_used} bytes of thread-local storage"
    suite.case("what it needs", needed)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
