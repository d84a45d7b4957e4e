#!/usr/bin/env python3
"""memory_limits.py - real programs meet HAKMEM_LIMIT_HARD_MB and say so; HAKMEM_LIMIT_SOFT_MB holds down what one that breathes keeps."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Skip, Suite, compile_c, need

MEMORY_ERROR = """
import sys
held, bytes_held = [], 0
try:
    while bytes_held < 1 << 30:
        held.append(bytes({size})); bytes_held += {size}
except MemoryError:
    held.clear()
    print('MemoryError after', bytes_held >> 20, 'MiB')
again = [bytes({size}) for i in range((16 << 20) // {size})]
print('goes on with', len(again))
"""


def main():
    suite = Suite("memory_limits", __doc__.split("\n")[0])
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"

    def memory_error(size):  # the interpreter itself takes 9 MiB, or 13 (3.13), and 400 bytes with their header 448
        def judge():
            done = suite.run([python, "-c", MEMORY_ERROR.format(size=size)], env={"HAKMEM_LIMIT_HARD_MB": "128", "PYTHONMALLOC": "malloc"})
            words = done.out.decode().split()
            if done.status != 0 or words[:2] != ["MemoryError", "after"]:
                return done.brief()
            return None if 96 <= int(words[2]) < 128 else f"after {words[2]} MiB of 128"
        return judge
    for size in (400, 20000, 1 << 20):
        suite.case(f"128 MiB: python3 raises MemoryError with blocks of {size}, and goes on", memory_error(size))

    def sqlite_out_of_memory():
        sql = "SELECT count(*) FROM (SELECT DISTINCT randomblob(900) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n " \
              "WHERE i < 200000) SELECT i FROM n));"
        shell = [need("sqlite3"), "-cmd", "PRAGMA temp_store = memory", ":memory:", sql]
        done = suite.run(shell, env={"HAKMEM_LIMIT_HARD_MB": "32"})
        if done.status == 0 or b"out of memory" not in done.err + done.out:
            return done.brief()
        done = suite.run(shell, env={"HAKMEM_LIMIT_HARD_MB": "2048"})
        return None if done.status == 0 and b"200000" in done.out else done.brief()
    suite.case("32 MiB: sqlite3 says that it is out of memory; 2 GiB: it is not", sqlite_out_of_memory)
    suite.works("64 MiB: true", lambda: [need("true")], env={"HAKMEM_LIMIT_HARD_MB": "64"})
    suite.works("1 MiB: true", lambda: [need("true")], env={"HAKMEM_LIMIT_HARD_MB": "1"})

    # Rises to 64 MiB in blocks of up to 2 KiB and falls to 20, six times: the mean of what was resident, in KiB.
    breathe = compile_c(suite, "soft_limit")

    def soft_limit():
        kib = {}
        for megabytes in ("0", "80", "40"):
            done = suite.run([breathe], env={"HAKMEM_LIMIT_SOFT_MB": megabytes})
            if done.status != 0:
                return done.brief()
            kib[megabytes] = [int(word) for word in done.out.split()]
        text = "; ".join(f"{key}: {low} KiB resident at the lows, {mean} on average, {ms} ms" for key, (low, mean, ms) in kib.items())
        print("  soft limit in MiB:", text)
        if not os.environ.get("HAK_TEST_EMULATED") and kib["40"][0] > kib["0"][0] * 8 // 10:
            return f"40 MiB made no difference: {text}"
        return None
    suite.case("a program that breathes keeps less under a soft limit", soft_limit)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
