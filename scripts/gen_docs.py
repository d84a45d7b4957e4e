#!/usr/bin/env python3
"""gen_docs.py - docs/options.md and docs/counters.md, from the rows of src/rules/*.def.

    scripts/gen_docs.py            writes both pages
    scripts/gen_docs.py --check    writes nothing; says which page is out of date, exit status 1
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def rows(path, macro):
    """The arguments of every MACRO...(...) row: (macro's suffix, plain arguments, text)."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    for found in re.finditer(macro + r'(_TEXT)?\s*\(((?:[^()"]|"(?:[^"\\]|\\.)*")*)\)', text):
        strings = STRING.findall(found.group(2))
        plain = [part.strip() for part in STRING.sub("", found.group(2)).split(",") if part.strip()]
        yield bool(found.group(1)), plain, "".join(strings).replace('\\"', '"')


def options_page():
    lines = ["# Options", "",
             "<!-- Written by scripts/gen_docs.py from src/rules/options.def; do not edit. -->", "",
             "Each is set in the environment as `HAKMEM_NAME=value`, with `hakmem run --name=value -- PROGRAM`, or,",
             "where the last column says so, by `hak_option_set` while the program runs. A wrong name or value is",
             "told in one line on standard error, and the default is used. Nothing is read from the environment of",
             "a program that runs with more rights than its user (setuid).", "",
             "| option | default | from | to | while running | what it does |", "|---|---:|---:|---:|---|---|"]
    for is_text, plain, text in rows("src/rules/options.def", "HAK_OPTION"):
        name, when = plain[0], plain[-1]
        numbers = ["", "", ""] if is_text else plain[1:4]
        lines.append(f"| `HAKMEM_{name.upper()}` | {' | '.join(numbers)} | {'yes' if when == 'ANY' else 'no'} | {text} |")
    return "\n".join(lines) + "\n"


def counters_page():
    lines = ["# Counters", "",
             "<!-- Written by scripts/gen_docs.py from src/rules/counters.def; do not edit. -->", "",
             "They count since the start and never on the fast paths. `HAKMEM_STATS=1` prints them at exit,",
             "`HAKMEM_REPORT=FILE` writes them as JSON, and `hak_stats_get` has them in `counter[]` in this order.", "",
             "| | counter | counts | what |", "|---:|---|---|---|"]
    for index, (_, plain, text) in enumerate(rows("src/rules/counters.def", "HAK_COUNTER")):
        lines.append(f"| {index} | `{plain[0]}` | {plain[1]} | {text} |")
    return "\n".join(lines) + "\n"


def main():
    stale = []
    for path, page in (("docs/options.md", options_page()), ("docs/counters.md", counters_page())):
        full = os.path.join(ROOT, path)
        try:
            with open(full, encoding="utf-8") as file:
                before = file.read()
        except FileNotFoundError:
            before = None
        if before == page:
            continue
        stale.append(path)
        if "--check" not in sys.argv:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(page)
    if "--check" in sys.argv and stale:
        print(f"{', '.join(stale)}: out of date; run scripts/gen_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
