#!/usr/bin/env python3
"""redis.py - redis-server under HAKMEM serves its own benchmark on loopback, and keeps its data."""
import contextlib
import re
import socket
import subprocess
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Skip, Suite, need


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(suite, preload):
    """A server of our own, ended by its process object."""
    port, program = free_port(), need("redis-server")
    child = subprocess.Popen([program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                              "--dir", suite.folder, "--io-threads", "2", "--enable-debug-command", "yes"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=suite.environment(preload))
    try:
        for _ in range(100):
            if child.poll() is not None:
                raise RuntimeError(f"redis-server ended with {child.returncode}: {child.stderr.read()[-300:]!r}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield port, child
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait(20)
        child.stderr.close()


def ask(suite, port, *words, stdin=b""):
    return suite.run([need("redis-cli"), "-p", str(port), *words], preload=False, stdin=stdin)


def resident_mb(child):
    with open(f"/proc/{child.pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) / 1024


def main():
    suite = Suite("redis", __doc__)

    def benchmark():
        benchmark_path = need("redis-benchmark")
        with server(suite, True) as (port, child):
            done = suite.run([benchmark_path, "-p", str(port), "-q", "-n", "10000", "-c", "20", "-r", "20000", "-d", "100", "-P", "8",
                              "-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset"], preload=True, seconds=180)
            if done.status != 0:
                return done.brief()
            rates = re.findall(rb"([\d.]+) requests per second", done.out)
            if len(rates) < 9:
                return f"only {len(rates)} results: {done.out[-200:]!r}"
            if child.poll() is not None:
                return f"the server ended with {child.returncode}"
            print(f"     {len(rates)} workloads, server at {resident_mb(child):.0f} MB")
        return None
    suite.case("redis-benchmark", benchmark)

    def same_answers():
        # Every value kind, expiry, scripts, a fork for BGSAVE while clients write, then a reload.
        commands = b"".join(b"SET k%d %s\nHSET h%d f%d v%d\nZADD z %d m%d\nRPUSH l%d a b c\n" %
                            (i, b"x" * (i % 300 + 1), i % 50, i, i, i * 7 % 1000, i, i % 20) for i in range(8000))
        answers = []
        for preload in (False, True):
            with server(suite, preload) as (port, child):
                ask(suite, port, stdin=commands)
                ask(suite, port, "BGSAVE")
                ask(suite, port, stdin=b"".join(b"APPEND k%d yyy\nDEL h%d\n" % (i, i % 25) for i in range(5000)))
                for _ in range(100):
                    if b"rdb_bgsave_in_progress:0" in ask(suite, port, "INFO", "persistence").out:
                        break
                    time.sleep(0.1)
                if b"rdb_last_bgsave_status:ok" not in ask(suite, port, "INFO", "persistence").out:
                    return f"BGSAVE failed, preload {preload}"
                ask(suite, port, "DEBUG", "RELOAD")
                answers.append(b"".join(ask(suite, port, *query).out for query in (
                    ("DBSIZE",), ("GET", "k77"), ("STRLEN", "k7999"), ("HGETALL", "h33"), ("ZRANGE", "z", "0", "50", "WITHSCORES"),
                    ("LRANGE", "l3", "0", "20"), ("EVAL", "local s=0 for i=1,7000 do s=s+redis.call('strlen','k'..i) end return s", "0"))))
                if child.poll() is not None:
                    return f"the server ended with {child.returncode}"
        return None if answers[0] == answers[1] and len(answers[0]) > 500 else "the answers differ"
    suite.case("redis answers as without", same_answers)

    def memory_falls():
        with server(suite, True) as (port, child):
            ask(suite, port, "DEBUG", "POPULATE", "300000", "key", "300")
            full = resident_mb(child)
            if full < 80:
                raise Skip(f"DEBUG POPULATE is not allowed here ({full:.0f} MB)")
            ask(suite, port, "FLUSHALL")
            time.sleep(3)
            for _ in range(20):
                ask(suite, port, "SET", "a", "b")
                time.sleep(0.1)
            after = resident_mb(child)
            print(f"     {full:.0f} MB full, {after:.0f} MB after FLUSHALL")
            return None if after < full / 3 else f"{after:.0f} MB of {full:.0f} MB stayed"
    suite.case("redis gives memory back", memory_falls)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
