"""exports.py - libhakmem.so exports what exports.txt lists, and takes from outside only what it may.

Built where glibc is newer, it loads where that is of 2021 (2.34: Red Hat 9, Amazon Linux 2023). No stdio, no malloc of somebody else's, no C++ library: any of them would come back to us while we work.
"""
import os
import re

from _law import HERE, ROOT, breach, finish, options, output

STDIO = re.compile(r"^(_IO_|__.*printf_chk|v?[fsd]?n?printf|v?asprintf|f?puts|f?put[cs]|putchar|fopen|fdopen|fclose|"
                   r"fwrite|fread|fflush|perror|setvbuf|std(in|out|err)$|getline|f?gets|v?[fs]?scanf|fseek)")
# malloc_info writes to the caller's FILE; weak, so that nothing of stdio comes with us into a static program.
STDIO_WEAK_ALLOWED = {"fputs", "fwrite"}
# operator new looks for the C++ runtime's way to throw in programs that loaded one.
LOADER_WEAK_ALLOWED = {"dlopen", "dlsym"}
ALLOCATES = re.compile(r"^(malloc|calloc|realloc|free|memalign|posix_memalign|aligned_alloc|strn?dup|opendir|"
                       r"getenv_s|setenv|putenv|qsort|syslog|dl(open|sym|info)|getpw|getaddrinfo)")
NEEDED_ALLOWED = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
GLIBC_NEWEST = (2, 34)
NEEDED_MUSL = re.compile(r"libc\.(so|musl-\w+\.so\.1)$")
# Of src/front/glibc.c and dlopen.c, which musl is not built with.
GLIBC_ALONE = {"malloc_trim", "mallinfo", "mallinfo2", "mallopt", "malloc_info", "malloc_stats", "dlopen", "dlsym", "dlvsym", "dlmopen",
               "__malloc_hook", "__realloc_hook", "__free_hook", "__memalign_hook", "__malloc_initialize_hook", "__after_morecore_hook"}

library = os.path.join(options().build, "libhakmem.so")
with open(os.path.join(HERE, "exports.txt"), encoding="utf-8") as file:
    expected = {line.strip() for line in file if line.strip() and not line.startswith("#")}
dynamic = output("readelf", "-dW", library)
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
is_musl = any(NEEDED_MUSL.match(name) for name in needed)

exported = set()
for line in output("nm", "-D", "--defined-only", library).splitlines():
    name = line.split()[-1]
    if "@" in name:
        breach(f"{name}: exported with a version; the loader would pass it over")
    exported.add(name.split("@")[0])
for name in sorted(exported - expected):
    breach(f"{name}: exported, but not in exports.txt")
for name in sorted(expected - exported - (GLIBC_ALONE if is_musl else set())):
    breach(f"{name}: in exports.txt, but not exported")

with open(os.path.join(ROOT, "packaging", "hakmem.map"), encoding="utf-8") as file:
    text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
mapped = set(re.findall(r"\b([A-Za-z_]\w*)\s*;", text.split("local:")[0]))
for name in sorted(mapped ^ expected):
    breach(f"{name}: exports.txt and packaging/hakmem.map differ")

for line in output("nm", "-D", "--undefined-only", library).splitlines():
    kind, name = line.split()[-2:]
    name = name.split("@")[0]
    weak = kind in "wv"
    if STDIO.match(name) and not (weak and name in STDIO_WEAK_ALLOWED):
        breach(f"{name}: stdio ({'weak' if weak else 'strong'})")
    if ALLOCATES.match(name) and not (weak and name in LOADER_WEAK_ALLOWED):
        breach(f"{name}: allocates, or is ours already")
    if not weak and re.match(r"^(_Z|__cxa_(?!finalize)|__gxx|_Unwind)", name):
        breach(f"{name}: needs a C++ library")

for name in re.findall(r"Name: (\S+) ", output("readelf", "-VW", library)):
    number = re.fullmatch(r"GLIBC_([\d.]+)", name)
    if not number or tuple(map(int, number.group(1).split("."))) > GLIBC_NEWEST:
        breach(f"{name}: not of glibc {'.'.join(map(str, GLIBC_NEWEST))}, or older")

for name in needed:
    if name not in NEEDED_ALLOWED and not NEEDED_MUSL.match(name):
        breach(f"needs {name}")
if re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) != ["libhakmem.so.0"]:
    breach("its SONAME is not libhakmem.so.0")
if "TEXTREL" in dynamic:
    breach("has text relocations")
if "NODELETE" not in dynamic:
    breach("may be unloaded, and threads keep our exit hooks (-z nodelete)")
finish(f"exports: {len(exported)} symbols")
