"""programs.py - what the runners of programs that do wrong share (test/misuse, test/guard): a folder of them, each run and judged.

A folder's NAME.c is built as DIR/test/KIND/KIND_NAME. They run without the library's variables but those that the runner gives,
and leave no cores.
"""
import argparse
import os
import resource
import subprocess


class Late(Exception):
    """The program still ran when its time was over."""


def run(path, more, seconds_max):
    """(exit status, what it printed, what it said on standard error)."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    environment.update(more)
    try:
        done = subprocess.run([path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds_max,
                              stdin=subprocess.DEVNULL, env=environment)
    except subprocess.TimeoutExpired:
        raise Late(f"still runs after {seconds_max} s") from None
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def arguments_parser(text, kind):
    parser = argparse.ArgumentParser(description=text.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True, help=f"build directory; programs are DIR/test/{kind}/{kind}_NAME")
    parser.add_argument("--only", default="", help="run only programs whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print PASS lines too")
    return parser


def judge_all(kind, folder, arguments, judge, is_wanted=lambda name: True):
    """judge(path, name) gives the reason why a program fails, or None. The exit status: 0, all passed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    names = sorted(name[:-2] for name in os.listdir(folder) if name.endswith(".c") and arguments.only in name and is_wanted(name))
    failures = []
    for name in names:
        path = os.path.join(os.path.abspath(arguments.build), "test", kind, f"{kind}_{name}")
        try:
            reason = judge(path, name) if os.path.exists(path) else f"{path} was not built"
        except Late as late:
            reason = str(late)
        if reason is not None:
            failures.append(name)
            print(f"FAIL {name}: {reason}")
        elif arguments.verbose:
            print(f"PASS {name}")
    print(f"{kind}: {len(names) - len(failures)} of {len(names)} passed")
    return 1 if failures or not names else 0
