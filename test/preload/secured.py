#!/usr/bin/env python3
"""secured.py - redis, sqlite, services and other languages' programs once more, under the secure level.

Whatever they do is right, so that nothing may be found; and that it would be, test/secure shows.  ctest: first
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ["redis", "sqlite", "services", "languages"]
SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    arguments = parser.parse_args()
    environment = dict(os.environ, HAK_TEST_SECURE="1")
    results = []
    for name in SCRIPTS:
        script = os.path.join(HERE, f"{name}.py")
        results.append(subprocess.run([sys.executable, script, "--build", arguments.build], env=environment, check=False).returncode)
    failed = [name for name, result in zip(SCRIPTS, results) if result not in (0, SKIPPED)]
    print("secured: " + (f"not as they should: {', '.join(failed)}" if failed else f"{results.count(0)} of {len(SCRIPTS)} passed"))
    return 1 if failed else 0 if 0 in results else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
