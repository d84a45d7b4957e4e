"""policy.py - real programs learn, write their policy file and start with it; what is not to be believed is left alone.

Redis and sqlite run under learning at a hundred times its speed; the hostile files are given to small ones.

ctest: first
"""
import argparse
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
LIBRARY = os.path.join(os.path.abspath(parser.parse_args().build), "libhakmem.so")
failures = []
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/wait.h>
#include <time.h>
static char *block[4096];
static void work(double seconds)
{
    struct timespec from, now;
    unsigned dice = 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        for (int i = 0; i < 100000; i++) {
            unsigned k = (dice = dice * 1103515245u + 12345u) >> 16 & 4095;
            free(block[k]);
            block[k] = malloc(16 + (dice >> 8) % 600);
            *block[k] = 1;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) + (now.tv_nsec - from.tv_nsec) * 1e-9 < seconds);
}
int main(int count, char **words)
{
    work(atof(words[1]));
    if (count > 2 && strcmp(words[2], "fork") == 0) {
        int status;
        for (int i = 0; i < 3; i++) {
            if (fork() == 0)
                exit(0); /* learns nothing, writes nothing */
            wait(&status);
        }
        sleep(1);
        _exit(0); /* the parent neither */
    }
    return 0;
}
"""


def expect(holds, said):
    if not holds:
        failures.append(said)
        print(f"FAILED: {said}", flush=True)


def environment(**more):
    plain = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_") and key != "LD_PRELOAD"}
    return dict(plain, LD_PRELOAD=LIBRARY, **{key: str(value) for key, value in more.items()})


def run(*command, **more):
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stderr}")
    return done.stderr


def learn_of(report):
    with open(report, encoding="utf-8") as file:
        return json.load(file)["learn"]


def fnv(text):
    total = 0xcbf29ce484222325
    for byte in text.encode():
        total = (total ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return total


def with_end(text):
    return text + f"end {fnv(text):016x}\n"


def frozen_text(policy, strategy, **knobs):
    """The file of a run that ended frozen on these knobs."""
    lines = policy.splitlines()
    head = [line for line in lines if line.split()[0] in ("hakmem-policy", "program", "library", "runs")]
    return with_end("\n".join(head + ["stage frozen", f"strategy {strategy}", "gain 50000 4000 40"] +
                              [f"knob {name} {value}" for name, value in knobs.items()]) + "\n")


def a_second_run_starts_with_what_the_first_learnt(folder, program):
    path, report = os.path.join(folder, "app.policy"), os.path.join(folder, "report.json")
    said = run(program, "4", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)
    expect(said == "", f"the first run says: {said}")
    expect(os.path.exists(path), "no policy was written")
    expect(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "the file's mode is not 0600")
    expect(os.listdir(folder).count("app.policy") == 1 and not any(".new" in name for name in os.listdir(folder)), "a sibling is left")
    with open(path, encoding="ascii") as file:
        first = file.read()
    expect(first.startswith("hakmem-policy 1\nprogram "), first[:200])
    expect(first == with_end(first[:first.rindex("end ")]), "the sum is another than docs/policy.md says")

    text = frozen_text(first, "mine", word_bytes=40960, free_max_mb=12)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    run(program, "0.3", HAKMEM_POLICY=path, HAKMEM_REPORT=report)
    learn = learn_of(report)
    expect(learn["stage"] == "frozen" and learn["strategy"] == "mine", f"{learn}")
    expect([row["reason"] for row in learn["history"]] == ["program_begins", "policy_read"], f"{learn['history']}")
    with open(path, encoding="ascii") as file:
        expect(file.read() == text, "a run that learnt nothing wrote the file")
    run(program, "0.3", HAKMEM_POLICY=path, HAKMEM_REPORT=report, HAKMEM_EVO_POLICY="off")
    expect(learn_of(report)["stage"] == "off", "off is not off")
    run(program, "0.3", HAKMEM_POLICY=path, HAKMEM_REPORT=report, HAKMEM_MINIMAL=1)
    expect(learn_of(report)["stage"] == "off", "minimal is not off")
    # what the user sets is not overridden: the setting then differs from the default only where he decides
    run(program, "0.3", HAKMEM_POLICY=path, HAKMEM_REPORT=report, HAKMEM_WORD_BYTES=8192, HAKMEM_FREE_MAX_MB=6)
    expect(learn_of(report)["strategy"] == "baseline", f"{learn_of(report)}")
    return text


def what_is_not_believed_is_told_and_left(folder, program, text):
    path = os.path.join(folder, "bad.policy")

    def told(content, why, mode=0o600):
        with open(path, "w", encoding="latin-1") as file:
            file.write(content)
        os.chmod(path, mode)
        said = run(program, "1.5", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)
        expect(said == f"hakmem: HAKMEM_POLICY: {path} is ignored: {why}\n", f"said {said!r}, not {why!r}")
        with open(path, encoding="latin-1") as file:
            expect(file.read() == content, f"{why}: the file was written over")
        os.unlink(path)

    told("", "it is empty")
    told("\0" * 1000, "line 1: it is longer than 256 bytes")
    told(text.replace("hakmem-policy 1", "hakmem-policy 2"), "line 1: it is of another version than 1")
    told(text.replace("word_bytes 40960", "word_bytes 40961"), f"line {text.count(chr(10))}: the sum at its end is not that of its bytes")
    body = text[:text.rindex("end ")]
    program_line = body.splitlines()[1]
    told(with_end(body.replace(program_line, "program 0123456789abcdef other")), "line 2: it is of another program")
    told(with_end(body.replace("word_bytes 40960", "word_bytes 99999999")), "line 8: a number is out of its range")
    told(text, "others than its owner and group may write to it", mode=0o602)
    told("x" * (513 << 10), "it is larger than 512 KiB")
    os.mkfifo(path)
    said = run(program, "0.1", HAKMEM_POLICY=path)
    expect("it is not a regular file" in said, said)
    os.unlink(path)
    for target in ("/dev/null", "/dev/zero", "/dev/full", folder):
        os.symlink(target, path)
        said = run(program, "1.5", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)
        expect(said == f"hakmem: HAKMEM_POLICY: {path} is ignored: it is not a regular file\n", said)
        expect(os.path.islink(path), f"the link to {target} was replaced")
        os.unlink(path)
    said = run(program, "1.5", HAKMEM_POLICY="/proc/self/no/such", HAKMEM_LEARN_HURRY=100)
    expect(said.count("\n") == 1 and "cannot be written" in said, said)
    if os.geteuid() == 0:  # another user's file
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chown(path, 12345, 12345)
        said = run(program, "0.1", HAKMEM_POLICY=path)
        expect("it belongs to another user" in said, said)
        os.unlink(path)
        own = os.path.join(folder, "own")  # a daemon's, which root starts and which then changes its user
        os.mkdir(own, 0o755)
        os.chown(own, 12345, 12345)
        path_own = os.path.join(own, "policy")
        with open(path_own, "w", encoding="ascii") as file:
            file.write(text)
        os.chown(path_own, 12345, 12345)
        said = run(program, "0.1", HAKMEM_POLICY=path_own, HAKMEM_EVO_POLICY="frozen")
        expect(said == "", said)
        os.chmod(own, 0o757)
        said = run(program, "0.1", HAKMEM_POLICY=path_own, HAKMEM_EVO_POLICY="frozen")
        expect("it belongs to another user" in said, said)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    missing = path + ".missing"
    for name in (path, missing):
        said = run(program, "0.1", HAKMEM_POLICY=name, HAKMEM_EVO_POLICY="frozen")
        expect(said == "", said)
    expect(open(path, encoding="ascii").read() == text, "frozen wrote the policy file")
    expect(not os.path.exists(missing), "frozen made a policy file")
    os.unlink(path)
    said = run(program, "0.1", HAKMEM_EVO_POLICY="sometimes")
    expect(said == "hakmem: HAKMEM_EVO_POLICY=sometimes is none of auto, learn, canary, frozen, off; the default frozen is used\n", said)


GROWING = r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define SITE(name) __attribute__((noinline)) static char *name(size_t n) { char *p = malloc(n); if (p) *p = 1; return p; }
SITE(early) SITE(late)
enum { BASE = 96 << 12, BLOCKS = 48 << 12 };
static char *base[BASE], *block[BLOCKS];
static double seconds(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
int main(int count, char **words)
{
    double from = seconds(), change = atof(words[1]), end = atof(words[2]), now;
    for (int i = 0; i < BASE; i++)
        base[i] = early(256);
    do { /* 48 MiB come and go on top of 96: the same work and the same sizes all the time */
        now = seconds() - from;
        for (int i = 0; i < BLOCKS; i++)
            block[i] = (now < change ? early : late)(240 + i % 16);
        for (int i = 0; i < BLOCKS; i++)
            free(block[i]);
    } while (now < end && count > 2);
    return 0;
}
"""


def growth_for_new_sites_wakes_it(folder):
    source, program = os.path.join(folder, "growing.c"), os.path.join(folder, "growing")
    with open(source, "w", encoding="utf-8") as file:
        file.write(GROWING)
    subprocess.run(["cc", "-O1", "-fno-builtin", "-Wl,--build-id", "-o", program, source], check=True)
    path, report = os.path.join(folder, "growing.policy"), os.path.join(folder, "growing.json")

    def reasons(change, end):
        run(program, "9", "0.1", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=20)  # its build-id
        with open(path, encoding="ascii") as file:
            frozen = frozen_text(file.read(), "mine", word_bytes=40960)
        with open(path, "w", encoding="ascii") as file:
            file.write(frozen)
        run(program, str(change), str(end), HAKMEM_POLICY=path, HAKMEM_REPORT=report, HAKMEM_LEARN_HURRY=20)
        learn = learn_of(report)
        os.unlink(path)
        return [row["reason"] for row in learn["history"]]
    same, new = reasons(99, 8), []
    for _ in range(3):  # on a busy machine another reason may wake it first
        new = reasons(5, 8)
        if "new_sites" in new:
            break
    print(f"growth: {same}; for a new site: {new}")
    expect("new_sites" not in same, f"the same sites are called new: {same}")
    expect("new_sites" in new, f"a new site's growth is not seen: {new}")


COMING_BACK = r"""
#include <stdlib.h>
#include <string.h>

void come_back(void)
{
    for (int i = 0; i < 8; i++) {
        char *block = malloc(1 << 20);
        memset(block, i + 1, 1 << 20);
        free(block);
    }
}
"""


def what_has_no_place_in_the_file_is_no_news(folder):
    """Sites of modules without a build-id cannot be told in the next run: each end of such a program wrote its file anew."""
    for name, text in (("plugin.c", COMING_BACK), ("host.c", "void come_back(void);\nint main(void) { come_back(); return 0; }\n")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    written = {}
    for kind in ("sha1", "none"):
        library, host = os.path.join(folder, f"plugin-{kind}.so"), os.path.join(folder, f"host-{kind}")
        subprocess.run(["cc", "-O1", "-fno-builtin", "-fPIC", "-shared", f"-Wl,--build-id={kind}", "-o", library, os.path.join(folder, "plugin.c")], check=True)
        subprocess.run(["cc", "-O1", "-Wl,--build-id", "-o", host, os.path.join(folder, "host.c"), library], check=True)
        path = os.path.join(folder, f"plugin-{kind}.policy")
        run(host, HAKMEM_POLICY=path)
        written[kind] = os.path.exists(path)
    expect(written == {"sha1": True, "none": False}, f"a file is written for sites that have a place in it: {written}")


def who_learnt_nothing_writes_nothing(folder, program):
    path = os.path.join(folder, "fork.policy")
    run(program, "0.2", HAKMEM_POLICY=path)
    expect(not os.path.exists(path), "a run too short to learn wrote a file")
    run(program, "2", "fork", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)
    expect(not os.path.exists(path), "a child that learnt nothing wrote a file")
    run(program, "2", HAKMEM_POLICY=os.path.join(folder, "%e-%p.%%.policy"), HAKMEM_LEARN_HURRY=100)
    expect(any(name.startswith("program-") and name.endswith(".%.policy") for name in os.listdir(folder)), f"{os.listdir(folder)}")
    # a full disk: the old file stays, one line says why
    limit = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))  # noqa: E731
    done = subprocess.run([program, "2"], env=environment(HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100), capture_output=True,
                          text=True, preexec_fn=limit, timeout=60)
    expect(done.returncode == 0 and done.stderr == f"hakmem: HAKMEM_POLICY: {path} cannot be written: file too large\n", done.stderr)
    expect(not any(name.startswith("fork.policy") for name in os.listdir(folder)), f"{os.listdir(folder)}")


def what_a_row_called_before_is_learnt_from_again(folder, program):
    """A library whose defaults were others has written: its baseline is no row of ours, and what we write must be believed again."""
    path = os.path.join(folder, "older.policy")
    run(program, "2", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)  # its build-id
    with open(path, encoding="ascii") as file:
        text = frozen_text(file.read(), "baseline", word_bytes=40960).replace("stage frozen", "stage learn")
    with open(path, "w", encoding="ascii") as file:
        file.write(with_end(text[:text.rindex("end ")]))
    named = [[], []]
    for turn in range(2):
        said = run(program, "4", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)
        expect(said == "", f"an older library's baseline, run {turn + 1}: {said}")
        with open(path, encoding="ascii") as file:
            named[turn] = [line.split()[1] for line in file if line.startswith("rating ")]
    expect("saved" in named[0] and all(names.count("baseline") == 1 for names in named), f"ratings of {named}")


def the_verdict_of_a_trial_that_went_on_is_kept(folder, program):
    """What an earlier run put on trial fails in this one: it claims what it cannot have. Then the next run does not try it again."""
    path, report = os.path.join(folder, "trial.policy"), os.path.join(folder, "trial.json")
    run(program, "2", HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)  # its build-id
    with open(path, encoding="ascii") as file:
        text = frozen_text(file.read(), "mine", word_bytes=40960).replace("stage frozen", "stage canary").replace("gain 50000 ", "gain 900000 ")
    for _ in range(3):  # on a busy machine it may not be over
        with open(path, "w", encoding="ascii") as file:
            file.write(with_end(text[:text.rindex("end ")]))
        run(program, "6", HAKMEM_POLICY=path, HAKMEM_REPORT=report, HAKMEM_LEARN_HURRY=100)
        reasons = [row["reason"] for row in learn_of(report)["history"]]
        if any(reason.startswith("trial_") for reason in reasons):
            break
    with open(path, encoding="ascii") as file:
        kept = file.read()
    print(f"a trial that went on: {reasons}")
    expect("trial_cost" in reasons, f"the trial gives no verdict: {reasons}")
    expect("\nstage canary\n" not in kept and "\nstrategy mine\n" not in kept, f"the verdict is not kept: {kept[:300]}")


def the_example_of_the_page_is_a_policy(folder, program):
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "policy.md")
    with open(page, encoding="utf-8") as file:
        lines = [line[4:] for line in file if line.startswith("    ")]
    begin = next(i for i, line in enumerate(lines) if line.startswith("hakmem-policy 1"))
    end = next(i for i, line in enumerate(lines) if i > begin and line.startswith("end "))
    path = os.path.join(folder, "example.policy")
    with open(path, "w", encoding="ascii") as file:
        file.writelines(lines[begin:end + 1])
    said = run(program, "0.1", HAKMEM_POLICY=path)
    expect(said == f"hakmem: HAKMEM_POLICY: {path} is ignored: line 2: it is of another program\n", said)
    with open(path, encoding="ascii") as file:
        text = file.read()
    expect(text == with_end(text[:text.rindex("end ")]), "the example's sum is another")


def the_bad_one_loses_and_the_twin_does_not_differ(folder, program):
    report = os.path.join(folder, "controls.json")
    run(program, "15", HAKMEM_EVO_POLICY="learn", HAKMEM_LEARN_HURRY=100, HAKMEM_LEARN_CONTROLS=1, HAKMEM_REPORT=report)
    ratings = {row["strategy"]: row for row in learn_of(report)["ratings"]}
    bad, twin = ratings["bad"], ratings["twin"]
    print(f"bad: {bad['elo']} after {bad['duels']} duels, {bad['state']}; twin: {twin['elo']} +- {twin['elo_error']} after {twin['duels']}")
    expect(bad["duels"] < 2 or bad["gain_millionths"] < -100000, f"bad is not bad: {bad}")
    expect(twin["state"] != "out", f"the twin of the default is out: {twin}")


def workers_write_one_file(folder, program):
    """Four learn at once, and end together; another program's file that came in between stays."""
    path = os.path.join(folder, "workers.policy")

    def worker(seconds):
        return subprocess.Popen([program, seconds], env=environment(HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100),
                                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    workers = [worker("2") for _ in range(4)]
    said = [one.communicate(timeout=60)[1] for one in workers]
    with open(path, encoding="ascii") as file:
        text = file.read()
    expect(said == [""] * 4 and all(one.returncode == 0 for one in workers), f"workers say: {said}")
    expect("\nruns 4\n" in text and text == with_end(text[:text.rindex("end ")]), f"not all four count: {text[:200]}")

    late = worker("2")
    time.sleep(1)
    foreign = with_end(text[:text.rindex("end ")].replace(text.splitlines()[1], "program 0123456789abcdef other"))
    with open(path, "w", encoding="ascii") as file:
        file.write(foreign)
    said = late.communicate(timeout=60)[1]
    with open(path, encoding="ascii") as file:
        expect(file.read() == foreign, "another program's file was overwritten")
    expect(said == f"hakmem: HAKMEM_POLICY: {path} is ignored: line 2: it is of another program\n", f"of it: {said!r}")

    os.remove(path)
    late = worker("2")
    time.sleep(1)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, 0o602)
    said = late.communicate(timeout=60)[1]
    with open(path, encoding="ascii") as file:
        expect(file.read() == text, "a file that anybody may write to was overwritten")
    expect("others than its owner and group may write to it" in said, f"of it: {said!r}")


def redis_learns(folder):
    server, bench = shutil.which("redis-server"), shutil.which("redis-benchmark")
    if not server or not bench:
        print("redis is missing: left out")
        return
    path, report = os.path.join(folder, "redis.policy"), os.path.join(folder, "redis.json")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    process = subprocess.Popen([server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True,
                               env=environment(HAKMEM_POLICY=path, HAKMEM_REPORT=report, HAKMEM_LEARN_HURRY=100))
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", int(port)), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    until = time.time() + 6
    while time.time() < until:
        done = subprocess.run([bench, "-p", port, "-n", "40000", "-r", "20000", "-d", "200", "-q", "-t", "set,lpush,lpop,sadd"],
                              capture_output=True, text=True, timeout=120)
        expect(done.returncode == 0, done.stderr)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    expect(process.returncode == 0, f"redis-server: {process.returncode}\n{said}")
    learn = learn_of(report)
    expect(learn["windows"] > 0 and os.path.exists(path), f"redis learnt nothing: {learn}")
    print(f"redis: {learn['windows']} windows, {learn['duels']} duels, stage {learn['stage']}, frozen {learn['frozen_strategy']}")


def sqlite_learns(folder):
    path = os.path.join(folder, "sqlite.policy")
    script = ("import sqlite3, time\nd = sqlite3.connect(':memory:')\nd.execute('create table t(a, b)')\nend = time.time() + 4\n"
              "n = 0\nwhile time.time() < end:\n"
              "    d.executemany('insert into t values(?, ?)', [(i * 7919 % 10007, 'x' * (i % 300)) for i in range(3000)])\n"
              "    n += d.execute('select count(*) from (select a, group_concat(b) from t group by a)').fetchone()[0]\n"
              "    d.execute('delete from t')\nassert n > 0\n")
    said = run(sys.executable, "-c", script, HAKMEM_POLICY=path, HAKMEM_LEARN_HURRY=100)
    expect(said == "", said)
    expect(os.path.exists(path), "sqlite under python wrote no policy")


def main():
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        subprocess.run(["cc", "-O1", "-fno-builtin", "-Wl,--build-id", "-o", program, source], check=True)
        text = a_second_run_starts_with_what_the_first_learnt(folder, program)
        what_is_not_believed_is_told_and_left(folder, program, text)
        growth_for_new_sites_wakes_it(folder)
        what_has_no_place_in_the_file_is_no_news(folder)
        who_learnt_nothing_writes_nothing(folder, program)
        what_a_row_called_before_is_learnt_from_again(folder, program)
        the_verdict_of_a_trial_that_went_on_is_kept(folder, program)
        the_example_of_the_page_is_a_policy(folder, program)
        the_bad_one_loses_and_the_twin_does_not_differ(folder, program)
        workers_write_one_file(folder, program)
        redis_learns(folder)
        sqlite_learns(folder)
    print(f"policy: {len(failures)} failures")
    sys.exit(1 if failures else 0)


main()
