#!/usr/bin/env python3
"""limits.py - programs run under HAKMEM where the system is tight: ulimit -v, no madvise, overcommit 2, few maps.

Some settings are the whole machine's for a moment, so nothing else may run beside this.  ctest: serial
"""
import contextlib
import resource
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Skip, Suite, compile_c, need

ADDRESS_SPACE_KIB = 65536
THREADS = """
import threading
results = []
def work():
    results.append(sum(len(b'x' * (i % 2000)) for i in range(20000)))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(results), sum(results))
"""


def address_space_limit():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_KIB * 1024, ADDRESS_SPACE_KIB * 1024))


@contextlib.contextmanager
def setting(path, value):
    """A system setting changed for a while; Skip where that is not permitted. Always put back."""
    try:
        with open(path) as file:
            before = file.read().strip()
        with open(path, "w") as file:
            file.write(value)
    except OSError as error:
        raise Skip(f"{path} cannot be set: {error.strerror}") from None
    try:
        yield
    finally:
        with open(path, "w") as file:
            file.write(before)


def main():
    suite = Suite("limits", __doc__.split("\n")[0])
    breathe = compile_c(suite, "breathe")
    refuse = compile_c(suite, "refuse_madvise")
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
    suite.run([need("sqlite3"), "small.db"], preload=False, stdin=b"CREATE TABLE t(a, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
              b"SELECT i+1 FROM n WHERE i < 5000) INSERT INTO t SELECT i, 'row ' || i FROM n;")
    sql = "SELECT count(*), sum(a), max(b) FROM t; SELECT b FROM t ORDER BY b DESC LIMIT 3;"

    tight = {"before": address_space_limit}
    suite.works("64 MiB: true", lambda: [need("true")], **tight)
    suite.works("64 MiB: sqlite3", lambda: [need("sqlite3"), "small.db", sql], says=b"5000|12502500|row 999", **tight)
    # 8 MiB of stack per thread would be 32 of the 64; without HAKMEM four such threads do not start either.
    suite.works("64 MiB: python3 with 4 threads",
                lambda: [python, "-c", "import threading; threading.stack_size(262144)\n" + THREADS], says=b"4 ", **tight)
    suite.works("64 MiB: python3 with 4 threads and PYTHONMALLOC=malloc",
                lambda: [python, "-c", "import threading; threading.stack_size(262144)\n" + THREADS], says=b"4 ",
                env={"PYTHONMALLOC": "malloc"}, **tight)
    suite.works("64 MiB: a program that breathes", lambda: [breathe, "6", "4", "4"], says=b"breathed", **tight)
    suite.works("64 MiB: perl", lambda: [need("perl"), "-e", 'my @a = map { "x" x ($_ % 400) } 1 .. 30000; print scalar(@a), "\n"'],
                says=b"30000", **tight)
    suite.works("64 MiB: bash and its children", lambda: [need("bash"), "-c", "for i in 1 2 3; do seq 1 20000 | sort -n | tail -1; done"],
                says=b"20000", **tight)

    def filtered(*argv):
        def make():
            probe = suite.run([refuse, need("true")], preload=False)
            if probe.status != 0:
                raise Skip(f"seccomp: {probe.brief()}")
            return [refuse, *argv]
        return make
    suite.works("no madvise: true", filtered("true"))
    suite.works("no madvise: sqlite3", filtered("sqlite3", "small.db", sql), says=b"5000|12502500|row 999")
    suite.works("no madvise: a program that breathes", filtered(breathe, "8", "3", "24"), says=b"breathed")
    suite.works("no madvise: python3", filtered(python, "-c", THREADS), says=b"4 ", env={"PYTHONMALLOC": "malloc"})

    # The tests over exported symbols themselves, where the build has them: contents and zeros must hold when
    # nothing can be given back.
    for kind, name in (("api", "calloc_zero"), ("api", "realloc_contents"), ("api", "contents"), ("fuzz", "sequence"), ("stress", "large_blocks")):
        def program(kind=kind, name=name):
            path = os.path.join(os.path.abspath(suite.arguments.build), "test", kind, f"{kind}_{name}")
            if not os.path.exists(path):
                raise Skip(f"{path} was not built")
            return filtered(path)()
        suite.works(f"no madvise: {kind}/{name}", program, preload=False, env={"HAK_STRESS_SECONDS": "3"})

    def under_setting(path, value, *argv, says):
        def judge():
            with setting(path, value):
                # Where the machine has promised more than it has nothing starts any more, with or without the library.
                try:
                    begins = suite.run(["true"], preload=False).status == 0
                    done = suite.run(list(argv)) if begins else None
                except OSError:
                    done = None
            if done is None:
                raise Skip(f"no program starts with {path} at {value}")
            return None if done.status == 0 and says in done.out else done.brief()
        return judge
    overcommit = "/proc/sys/vm/overcommit_memory"
    suite.case("overcommit 2: true", under_setting(overcommit, "2", "true", says=b""))
    suite.case("overcommit 2: sqlite3", under_setting(overcommit, "2", "sqlite3", "small.db", sql, says=b"5000|12502500"))
    suite.case("overcommit 2: a program that breathes", under_setting(overcommit, "2", breathe, "6", "4", "16", says=b"breathed"))
    suite.case("overcommit 2: python3", under_setting(overcommit, "2", python, "-c", THREADS, says=b"4 "))
    suite.case("few maps: a program that breathes", under_setting("/proc/sys/vm/max_map_count", "400", breathe, "8", "3", "40",
                                                                  says=b"breathed"))
    thp = "/sys/kernel/mm/transparent_hugepage/enabled"

    def huge_pages_always():
        with open(thp) if os.path.exists(thp) else contextlib.nullcontext() as file:
            before = file.read().split("[")[1].split("]")[0] if file else None
        if before is None:
            raise Skip("no transparent huge pages here")
        try:
            with open(thp, "w") as file:
                file.write("always")
        except OSError as error:
            raise Skip(f"{thp} cannot be set: {error.strerror}") from None
        try:
            # Each start has other addresses. Python maps no arenas of its own so: two of those make a huge page at some addresses.
            argv = [python, "-c", "print([l for l in open('/proc/self/smaps_rollup') if 'AnonHuge' in l][0].split()[1])"]
            starts = [suite.run(argv, env={"PYTHONMALLOC": "malloc"}) for _ in range(40)]
            breathed = suite.run([breathe, "6", "3", "16"])
        finally:
            with open(thp, "w") as file:
                file.write(before)
        for done in (*starts, breathed):
            if done.status != 0:
                return done.brief()
        huge = [int(done.out) for done in starts if int(done.out) > 0]
        return f"{len(huge)} of {len(starts)} starts of python3 have {max(huge)} KiB of huge pages" if huge else None
    suite.case("huge pages always: python3 stays small", huge_pages_always)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
