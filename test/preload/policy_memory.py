#!/usr/bin/env python3
"""policy_memory.py - what a policy file knows of memory: free memory that is not wanted again goes, what each run fills comes in huge pages."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, compile_c


class Broken(Exception):
    """What does not hold."""


def expect(holds, said):
    if not holds:
        raise Broken(said)


def lines_of(path, keyword):
    with open(path, encoding="ascii") as file:
        return [tuple(int(word) for word in line.split()[1:]) for line in file if line.split()[0] == keyword]


def main():
    suite = Suite("policy_memory", __doc__.split("\n")[0])
    flags = ("-fno-builtin", "-Wl,--build-id")

    def told(check):
        def judge():
            try:
                check()
            except Broken as broken:
                return str(broken)
            return None
        return judge

    def spare_memory():
        program = compile_c(suite, "sparing", flags)

        def runs(kind, **more):
            path = os.path.join(suite.folder, f"sparing-{kind}.policy")
            resident = []
            for _ in range(5):
                done = suite.run([program, kind], env={"HAKMEM_POLICY": path, **more})
                expect(done.status == 0 and done.err == b"", f"{kind}: {done.brief()}")
                resident.append(int(done.out))
            text = ""
            if os.path.exists(path):
                with open(path, encoding="ascii") as file:
                    text = next((line for line in file if line.startswith("spare ")), "")
                os.unlink(path)
            return resident, text
        once, breathing = runs("once"), runs("breathing")
        worker = runs("worker")
        pinned, frozen = runs("once", HAKMEM_FREE_MAX_MB="6"), runs("once", HAKMEM_EVO_POLICY="frozen")
        print(f"resident KiB in five runs: {once}; breathing {breathing}; worker {worker}; pinned {pinned}; frozen {frozen}")
        expect(once[1].startswith("spare 3 "), f"free memory that is not wanted: {once}")
        expect(worker[1].startswith("spare 3 "), f"a worker that ends in its first second: {worker}")
        expect(once[0][-1] < once[0][0] - 1500, f"no less is resident: {once}")
        expect(not breathing[1].startswith("spare 3") and not breathing[1].startswith("spare 2"), f"free memory that is wanted: {breathing}")
        expect(pinned[1] == "" and frozen[1] == "", f"what the user decided is overridden: {pinned} {frozen}")
    suite.case("free memory that is not wanted again is not kept", told(spare_memory))

    def filled_memory():
        program = compile_c(suite, "filling", flags)
        path = os.path.join(suite.folder, "filling.policy")

        def one(mib, **more):
            done = suite.run([program, str(mib)], env={"HAKMEM_POLICY": path, **more})
            expect(done.status == 0 and done.err == b"", done.brief())
            return tuple(int(word) for word in done.out.split())
        seen = [one(2)]
        first = lines_of(path, "filled")
        expect(first and all(slabs == 0 and last > 0 for _, slabs, last in first), f"after one run: {first}")
        seen.append(one(2))
        known = dict((size, slabs) for size, slabs, _ in lines_of(path, "filled"))
        expect(all(known.get(size, 0) >= least for size, least in ((48, 28), (112, 28), (240, 28), (640, 7))), f"after two runs: {known}")
        seen += [one(2) for _ in range(3)]
        dear = lines_of(path, "dear")
        print(f"faults, peak KiB, KiB of huge pages in five runs: {seen}; dear {dear}")
        if os.path.exists("/sys/kernel/mm/transparent_hugepage/enabled") and not dear:
            with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
                has_huge = "[never]" not in file.read()
            expect(not has_huge or seen[-1][2] >= 2048, f"no huge page: {seen}")
            expect(seen[-1][2] < 6144 or seen[-1][0] < seen[0][0] * 2 / 3, f"no fewer faults: {seen}") # one may have been slow, and was the last
            expect(seen[-1][1] < seen[0][1] + 2048, f"more memory: {seen}")
        pinned = one(2, HAKMEM_HUGE_FROM_MB="16")
        expect(pinned[0] > seen[0][0] * 3 / 4, f"who set the option has what he set: {pinned}, {seen[0]}")
        before = lines_of(path, "filled")
        small = one(0)
        print(f"of a run that fills nothing: {small}, pinned {pinned}")
        expect(lines_of(path, "fell") == [(1,)], "one that fills less is not believed")
        expect(all(slabs == 0 for _, slabs, _ in lines_of(path, "filled")), f"what it did not fill is known all the same: {before}")
        os.unlink(path)
        for _ in range(2):
            one(2, HAKMEM_EVO_POLICY="frozen")
        expect(not os.path.exists(path), "a frozen run writes")
    suite.case("what each run fills comes in huge pages from the first on", told(filled_memory))
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
