"""tls.py - the library has one thread-local variable, and at most 64 bytes of thread-local storage.

What is above the loader's small surplus makes a dlopen fail ("cannot allocate memory in static TLS block").
"""
import os

from _law import breach, finish, options, output

BYTES_MAX = 64

library = os.path.join(options().build, "libhakmem.so")
size = 0
for line in output("readelf", "-lW", library).splitlines():
    fields = line.split()
    if fields and fields[0] == "TLS":
        size = int(fields[5], 16)
names = set()
for line in output("readelf", "-sW", library).splitlines():
    fields = line.split()
    if len(fields) >= 8 and fields[3] == "TLS" and fields[6] != "UND":
        names.add(fields[7])
if len(names) != 1:
    breach(f"thread-local variables: {', '.join(sorted(names)) or 'none'}; there is to be one")
if size > BYTES_MAX:
    breach(f"{size} bytes of thread-local storage; the limit is {BYTES_MAX}")
finish(f"tls: {', '.join(sorted(names))}, {size} bytes")
