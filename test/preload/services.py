#!/usr/bin/env python3
"""services.py - memcached, java, ruby, php, lua, go with cgo and stress-ng run under HAKMEM as without."""
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))
from preloaded import Suite, need

RUBY = """
srand(7)
table = {}
100000.times { |i| table["key#{i * 7919 % 50021}"] = ("x" * rand(200)) + i.to_s }
threads = 4.times.map { |n| Thread.new { (0...20000).sum { |i| ("y" * (i % 700)).size + n } } }
text = table.sort.map { |k, v| k + v }.join(",")
GC.start
puts text.hash == text.dup.hash, text.size, threads.sum(&:value), text.scan(/9+/).size
"""

PHP = """
mt_srand(7); $table = [];
for ($i = 0; $i < 200000; $i++) { $table['k' . ($i * 7919 % 50021)] = str_repeat(chr(97 + $i % 26), mt_rand(0, 300)); }
ksort($table); echo md5(serialize($table)), ' ', strlen(json_encode($table)), ' ', preg_match_all('/a+/', implode(',', $table)), "\\n";
"""

LUA = """
local t, n = {}, 7
for i = 1, 300000 do n = (n * 1103515245 + 12345) % 2147483648; t['k' .. n % 50021] = string.rep('x', n % 300) end
local keys = {} for k in pairs(t) do keys[#keys + 1] = k end table.sort(keys)
local s = 0 for i, k in ipairs(keys) do s = s + #t[k] * (i % 7) end
print(#keys, s, #table.concat(keys, ','))
"""

JAVA = """
import java.util.*; import java.util.zip.*;
public class Busy {
    public static void main(String[] a) throws Exception {
        Random random = new Random(7); Map<String, byte[]> table = new TreeMap<>();
        for (int i = 0; i < 100000; i++) table.put("k" + random.nextInt(50000), new byte[random.nextInt(300)]);
        CRC32 crc = new CRC32(); for (var e : table.entrySet()) { crc.update(e.getKey().getBytes()); crc.update(e.getValue()); }
        Deflater deflater = new Deflater(9); deflater.setInput(new byte[5000000]); deflater.finish();
        byte[] out = new byte[100000]; int n = deflater.deflate(out); deflater.end();
        Thread[] threads = new Thread[4]; for (int i = 0; i < 4; i++) { threads[i] = new Thread(() -> {
            for (int k = 0; k < 200; k++) { var b = java.nio.ByteBuffer.allocateDirect(100000); b.putInt(0, k); } }); threads[i].start(); }
        for (var t : threads) t.join(); System.out.println(crc.getValue() + " " + n + " " + table.size());
    }
}
"""

GO_CGO = """
package main
/*
#include <stdlib.h>
#include <string.h>
static char *make(int n) { char *p = malloc(n + 1); memset(p, 'a' + n % 26, n); p[n] = 0; return p; }
static int size(char *p) { return (int)strlen(p); }
*/
import "C"
import ("fmt"; "sync"; "unsafe")
func main() {
    var group sync.WaitGroup; totals := make([]int, 8); passed := make(chan *C.char, 1000)
    for g := 0; g < 8; g++ { group.Add(1); go func(g int) { defer group.Done(); for i := 0; i < 20000; i++ {
        p := C.make(C.int(i % 900)); totals[g] += int(C.size(p))
        if i % 3 == 0 { select { case passed <- p: continue; default: } }
        C.free(unsafe.Pointer(p))
        if i % 5 == 0 { select { case q := <-passed: C.free(unsafe.Pointer(q)); default: } } } }(g) }
    group.Wait(); close(passed); for p := range passed { C.free(unsafe.Pointer(p)) }
    fmt.Println(totals)
}
"""


def memcached_judge(suite):
    program = need("memcached")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "64", "-t", "4", "-u", "nobody"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=suite.environment(True))
    try:
        for _ in range(100):
            try:
                connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(16)]
                break
            except OSError:
                time.sleep(0.05)
        else:
            return f"memcached does not listen (it ended with {child.poll()})"
        for turn in range(60):
            for number, connection in enumerate(connections):
                value = b"v" * ((turn * 37 + number * 101) % 5000)
                text = b"".join(b"set k%d-%d 0 0 %d noreply\r\n%s\r\n" % (number, i, len(value), value) for i in range(20))
                connection.sendall(text + b"get k%d-7\r\n" % number)
            for number, connection in enumerate(connections):
                value = b"v" * ((turn * 37 + number * 101) % 5000)
                wanted, got = b"VALUE k%d-7 0 %d\r\n%s\r\nEND\r\n" % (number, len(value), value), b""
                while len(got) < len(wanted):
                    part = connection.recv(65536)
                    if not part:
                        return f"the connection ended in turn {turn}"
                    got += part
                if got != wanted:
                    return f"turn {turn}: {got[:80]!r}"
        for connection in connections:
            connection.close()
        return None if child.poll() is None else f"memcached ended with {child.returncode}"
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait(20)
        child.stderr.close()


def main():
    suite = Suite("services", __doc__)
    suite.case("memcached", lambda: memcached_judge(suite))
    suite.same("ruby", lambda: [need("ruby"), "-e", RUBY])
    suite.same("php", lambda: [need("php"), "-d", "memory_limit=1G", "-r", PHP])
    suite.same("php without its own allocator", lambda: [need("php"), "-d", "memory_limit=1G", "-r", PHP], env={"USE_ZEND_ALLOC": "0"})
    suite.same("lua", lambda: [need("lua5.4"), "-e", LUA])

    def java():
        return [need("java"), "-Xmx256m", suite.write("Busy.java", JAVA)]
    suite.same("java", java)

    def go_with_cgo():
        program = os.path.join(suite.folder, "cgo")
        suite.write("go/main.go", GO_CGO)
        suite.write("go/go.mod", "module small\n")
        built = suite.run([need("go"), "build", "-o", program, "."], preload=False, cwd=os.path.join(suite.folder, "go"), seconds=240,
                          env={"CGO_ENABLED": "1", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local",
                               "GOCACHE": os.path.join(suite.folder, "go-cache")})
        if built.status != 0:
            raise RuntimeError(built.brief())
        return [program]
    suite.same("go with cgo", go_with_cgo)

    def stress_ng(*arguments):
        return lambda: [need("stress-ng"), "--quiet", "--timeout", "5", "--oom-avoid", *arguments]
    suite.works("stress-ng --malloc", stress_ng("--malloc", "2", "--malloc-bytes", "64M", "--malloc-pthreads", "3", "--verify"))
    suite.works("stress-ng: lists, trees, sorts, hashes", stress_ng("--list", "1", "--tree", "1", "--qsort", "1", "--hash", "1", "--judy", "1",
                                                                     "--skiplist", "1", "--radixsort", "1"))
    suite.works("stress-ng: forks and threads", stress_ng("--fork", "1", "--pthread", "1", "--vfork", "1", "--clone", "1"))
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
