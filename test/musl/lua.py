"""lua.py - Lua, built for musl, works under HAKMEM as under musl's malloc: preloaded, linked to libhakmem.so, static with
libhakmem.a and with hakmem.o. In the static ones there is nothing of musl's malloc.
"""
import glob
import json
import os
import sys
import tempfile

from _musl import LINK, ROOT, SKIPPED, SOURCES, arguments, compiler, run

SCRIPT = r"""
local seed = 12345
local function random(n) seed = (seed * 1103515245 + 12345) % 2147483648; return seed % n end
local words, count = {}, {}
for i = 1, 120000 do words[i] = string.rep(string.char(97 + random(26)), 1 + random(60)) .. i end
for _, word in ipairs(words) do count[#word] = (count[#word] or 0) + 1 end
table.sort(words)
local sum = 0
for i = 1, #words, 3 do words[i] = nil; sum = (sum * 31 + i) % 1000000007 end
collectgarbage()
local parts = {}
for round = 1, 30 do
  local rows = {}
  for i = 1, 3000 do rows[i] = {id = i, name = "row" .. i, more = {round, i * round}} end
  parts[round] = table.concat((function() local t = {} for i = 1, #rows do t[i] = rows[i].name end return t end)(), ",")
  sum = (sum + #parts[round] * round) % 1000000007
end
local threads = {}
for i = 1, 400 do threads[i] = coroutine.wrap(function() local own = {} for k = 1, 40 do own[k] = k .. i; coroutine.yield(#own[k]) end end) end
for k = 1, 40 do for i = 1, 400 do sum = (sum * 7 + threads[i]()) % 1000000007 end end
local large = string.rep("x", 5 << 20):gsub("x", "yz")
local name = os.tmpname()
local file = assert(io.open(name, "w")); file:write(table.concat(parts, "\n")); file:close()
local lines = 0; for line in io.lines(name) do lines = lines + #line end
os.remove(name)
print(sum, #large, count[12], words[2], lines)
for i = 1, 5 do collectgarbage() end
"""


def symbols(program):
    return {line.split()[-1] for line in run("nm", program).splitlines()}


def main():
    build = os.path.abspath(arguments().build)
    folders = glob.glob(os.path.join(SOURCES, "lua*", "src"))
    if not folders:
        print("Lua's sources are not there (scripts/setup test)")
        return SKIPPED
    sources = [path for path in glob.glob(os.path.join(folders[0], "*.c")) if os.path.basename(path) not in ("luac.c", "onelua.c")]
    compile_line = [compiler(build), "-O1", "-std=gnu99", "-DLUA_USE_POSIX", "-DLUA_USE_DLOPEN"]
    shared = os.path.join(build, "libhakmem.so")
    with tempfile.TemporaryDirectory() as folder:
        def in_folder(name):
            return os.path.join(folder, name)

        objects = [in_folder(os.path.basename(path)[:-2] + ".o") for path in sources]
        for source, made in zip(sources, objects):
            run(*compile_line, "-c", source, "-o", made)
        forms = {
            "plain": ["-rdynamic"],
            "linked": ["-rdynamic", shared, f"-Wl,-rpath,{build}"],
            "static": ["-static", os.path.join(build, "libhakmem.a")],
            "object": ["-static", os.path.join(build, "hakmem.o")],
            "static-pie": ["-static-pie", os.path.join(build, "libhakmem.a")],
        }
        for name, more in forms.items():
            run(*compile_line, *objects, "-o", in_folder(name), *more, *LINK, "-lm")
        wanted = run(in_folder("plain"), "-", text=SCRIPT)
        for name in ["preloaded", *forms]:
            if name == "plain":
                continue
            report, more = in_folder(f"{name}.json"), {"LD_PRELOAD": shared} if name == "preloaded" else {}
            got = run(in_folder("plain" if name == "preloaded" else name), "-", text=SCRIPT, HAKMEM_REPORT=report, **more)
            if got != wanted:
                raise SystemExit(f"{name}: prints {got!r}, and not {wanted!r}")
            with open(report, encoding="utf-8") as file:
                visits = json.load(file)["counters"]["visit_next_word"]
            if visits < 5000:
                raise SystemExit(f"{name}: HAKMEM served {visits} words of blocks: it was not the malloc")
            print(f"{name}: {visits} words of blocks")
        for name in ("static", "object", "static-pie"):
            theirs = symbols(in_folder(name)) & {"__malloc_context", "__libc_malloc_impl", "__malloc_donate", "__malloc_lock"}
            if theirs:
                raise SystemExit(f"{name}: has musl's malloc as well: {theirs}")
    return 0


sys.exit(main())
