"""The hakmem command: `python -m hakmem ARGUMENT..`, and what the script `hakmem` calls."""
import os
import sys
from typing import NoReturn

from ._process import become, environment_given


def main() -> NoReturn:
    """Becomes the command, which finds the library in ../lib of its folder."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "hakmem")
    try:
        become(program, ["hakmem", *sys.argv[1:]], environment_given())
    except OSError as error:
        sys.exit(f"hakmem: {program} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
