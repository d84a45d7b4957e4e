#!/usr/bin/env python3
"""deepbind.py - who looks malloc and free up in libc itself: RTLD_DEEPBIND, ctypes, dlsym of any handle, PHP's extensions; and dlopen stays what it is."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, compile_c, need

CTYPES = """
import ctypes
libc, program = ctypes.CDLL("libc.so.6"), ctypes.CDLL(None)
for library in (libc, program):
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    library.malloc.restype = library.strdup.restype = ctypes.c_void_p
for count in range(0, 3000, 7):
    libc.free(libc.strdup(b"word" * count))
    program.free(libc.malloc(count * 50))
    libc.free(program.malloc(count * 50))
print("fine")
"""

# A library's own handle is searched with all that it needs, so that these are libc's as well.
HANDLE = """
import ctypes
math = ctypes.CDLL("libm.so.6")
math.free.argtypes, math.free.restype = [ctypes.c_void_p], None
math.strdup.restype = math.malloc.restype = ctypes.c_void_p
for count in range(0, 3000, 7):
    math.free(math.strdup(b"word" * count))
    math.free(math.malloc(count * 50))
print("fine")
"""

# The same by dlvsym, which names the version.
VERSION = """
import ctypes, platform
program, math = ctypes.CDLL(None), ctypes.CDLL("libm.so.6")
find = program.dlvsym
find.argtypes, find.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p], ctypes.c_void_p
first = {"x86_64": b"GLIBC_2.2.5", "aarch64": b"GLIBC_2.17"}[platform.machine()]
program.malloc.restype = ctypes.c_void_p
for handle in program._handle, math._handle:
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(find(handle, b"free", first))
    for count in range(0, 3000, 7):
        free(program.malloc(count * 50))
assert find(math._handle, b"cos", first) and not find(math._handle, b"no such name", first)
print("fine")
"""

# Each part where the extension is there; what they print must not differ.
PHP = """
echo implode(" ", get_loaded_extensions()), "\\n";
if (class_exists("DOMDocument")) { $page = new DOMDocument(); $page->loadXML("<a><b x='1'>text</b></a>"); echo $page->saveXML(); }
if (function_exists("simplexml_load_string")) echo count(simplexml_load_string("<r><i>1</i><i>2</i></r>")->i), "\\n";
if (extension_loaded("pdo_sqlite")) {
    $data = new PDO("sqlite::memory:"); $data->exec("create table t(a)");
    for ($i = 0; $i < 1000; $i++) $data->exec("insert into t values($i)");
    echo $data->query("select sum(a) from t")->fetchColumn(), "\\n";
}
if (function_exists("iconv")) echo iconv("UTF-8", "ISO-8859-1", "abc"), "\\n";
if (function_exists("mb_strtoupper")) echo mb_strtoupper("abc"), "\\n";
if (function_exists("gettext")) echo gettext("word"), "\\n";
echo gethostbyname("localhost"), json_encode(array_map("strrev", explode(" ", "one two three"))), "\\n";
"""


def library(suite, name, target, *flags):
    """helper/NAME.c as a shared library at `target`."""
    os.rename(compile_c(suite, name, ("-shared", "-fPIC", *flags)), target)
    return target


def main():
    suite = Suite("deepbind", __doc__)
    inner = os.path.join(suite.folder, "inner")
    os.makedirs(inner)
    plugin = library(suite, "deep_plugin", os.path.join(suite.folder, "deep_plugin.so"))
    host = compile_c(suite, "deep_host")
    suite.works("blocks go both ways", lambda: [host, plugin], says=b"fine")
    for turn in range(5):
        suite.works(f"eight threads open it at once, {turn + 1}", lambda: [host, plugin, "8"], says=b"fine")
    suite.works("recorded", lambda: [host, plugin, "4"], says=b"fine", env={"HAKMEM_RECORD": "/dev/null", "HAKMEM_SAMPLE_BYTES": "1024"})
    suite.works("guarded", lambda: [host, plugin, "4"], says=b"fine", env={"HAKMEM_GUARD": "3"})
    suite.works("dlmopen into the program's own space", lambda: [host, plugin, "2", "dlmopen"], says=b"fine")
    linked = os.path.join(suite.folder, "deep_linked")
    os.rename(compile_c(suite, "deep_host", ("-Wl,--no-as-needed", suite.library, "-Wl,-rpath," + os.path.dirname(suite.library))), linked)
    suite.works("linked, not preloaded", lambda: [linked, plugin, "2"], says=b"fine", preload=False)

    own_plugin = library(suite, "deep_plugin", os.path.join(suite.folder, "own_plugin.so"), "-DOWN_MALLOC")
    own = os.path.join(suite.folder, "deep_own")
    os.rename(compile_c(suite, "deep_host", ("-DOWN_MALLOC", "-fno-builtin", "-rdynamic")), own)
    suite.same("a program with a malloc of its own", lambda: [own, own_plugin, "2"])

    library(suite, "deep_plugin", os.path.join(inner, "libhak_test_leaf.so"))
    middle = library(suite, "deep_way", os.path.join(suite.folder, "middle.so"), "-DMIDDLE",
                     "-Wl,--enable-new-dtags,-rpath,$ORIGIN/inner")
    way = compile_c(suite, "deep_way")
    suite.same("dlopen searches its caller's RUNPATH", lambda: [way, middle])

    suite.same("ctypes asks libc for free", lambda: [need("python3"), "-c", CTYPES])
    suite.same("ctypes asks any library's handle for free", lambda: [need("python3"), "-c", HANDLE])
    suite.same("dlvsym of any handle", lambda: [need("python3"), "-c", VERSION])
    suite.same("php with its extensions", lambda: [need("php"), "-d", "memory_limit=1G", "-r", PHP])
    suite.same("php, blocks from malloc", lambda: [need("php"), "-d", "memory_limit=1G", "-r", PHP], env={"USE_ZEND_ALLOC": "0"})
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
