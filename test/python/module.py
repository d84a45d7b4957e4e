#!/usr/bin/env python3
"""module.py - the Python module, from its source, with the library of the build: what it says when it is loaded and when not; which tag a
wheel may have."""
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "packaging", "python")
BUILD = os.path.abspath(sys.argv[sys.argv.index("--build") + 1] if "--build" in sys.argv else os.path.join(ROOT, "build", "release"))
LIBRARY = os.path.join(BUILD, "libhakmem.so")
sys.dont_write_bytecode = True
sys.path.insert(0, PACKAGE)
import hakmem  # noqa: E402  (after the path)
from hakmem import _native  # noqa: E402
from platform_tag import Untaggable, file_needs, platform_tag  # noqa: E402

# The interpreter behind a shim, and Debian's: one of them has a stub of malloc in the program.
PYTHONS = sorted({os.path.realpath(python) for python in (sys.executable, "/usr/bin/python3") if os.path.exists(python)})


def python(program, preload=None, more=(), executable=sys.executable, path=PACKAGE, stdin=subprocess.DEVNULL, **environment):
    """Runs a program; what it printed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_PRELOAD", "PYTHON", "LC_", "LANG"))}
    variables.update(environment, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", **({"LD_PRELOAD": preload} if preload else {}))
    done = subprocess.run([executable, *more, "-c", textwrap.dedent(program)], env=variables, stdin=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", timeout=60)
    return done.stdout + (f"exit {done.returncode}\n" if done.returncode else "")


class Loaded(unittest.TestCase):
    """Under the library."""

    def test_it_is_known_however_the_interpreter_was_built(self):
        for executable in PYTHONS:
            with self.subTest(executable):
                ask = "import hakmem; print(hakmem.loaded())"
                self.assertEqual(python(ask, LIBRARY, executable=executable), "True\n")
                self.assertEqual(python(ask, executable=executable), "False\n")

    def test_a_library_that_was_opened_later_does_not_count(self):
        program = f"import ctypes; ctypes.CDLL({LIBRARY!r}, ctypes.RTLD_GLOBAL); import hakmem; print(hakmem.loaded())"
        self.assertEqual(python(program), "False\n")

    def test_statistics_count_what_the_program_holds(self):
        self.assertEqual(python("""
            import hakmem
            before = hakmem.stats()
            held = [bytearray(100_000) for _ in range(200)]
            after = hakmem.stats()
            assert 20_000_000 <= after["live_bytes"] - before["live_bytes"] < 30_000_000, (before, after)
            assert after["resident_bytes"] > after["live_bytes"] and after["classes"] and after["counters"], after
            """, LIBRARY), "")

    def test_collect_gives_back_what_is_free(self):
        self.assertEqual(python("""
            import hakmem
            held = [b"x" * 20_000 for _ in range(300)]
            del held
            assert hakmem.collect() > 2_000_000
            """, LIBRARY, HAKMEM_FREE_MAX_MB="64", PYTHONMALLOC="malloc"), "")

    def test_options_are_read_and_set(self):
        self.assertEqual(python("""
            import hakmem
            assert hakmem.option("purge_delay_ms") == "77" == hakmem.option("HAKMEM_PURGE_DELAY_MS")
            hakmem.set_option("purge_delay_ms", 100)
            assert hakmem.option("purge_delay_ms") == "100"
            hakmem.set_option("HAKMEM_PURGE_DELAY_MS", "101")
            assert hakmem.option("purge_delay_ms") == "101"
            assert hakmem.option("policy") == ""
            """, LIBRARY, HAKMEM_PURGE_DELAY_MS="77"), "")

    def test_a_path_is_read_whole(self):
        path = "/" + "long/" * 20 + "%p"
        self.assertEqual(python("import hakmem; print(hakmem.option('guard_dump'))", LIBRARY, HAKMEM_GUARD_DUMP=path), path + "\n")

    def test_what_is_wrong_with_an_option_is_said(self):
        self.assertEqual(python(r"""
            import hakmem
            def said(function, *arguments):
                try:
                    function(*arguments)
                except hakmem.OptionError as error:
                    print(error)
            said(hakmem.option, "purge_delay")
            said(hakmem.option, "a\0b")
            said(hakmem.set_option, "purge_delay", 1)
            said(hakmem.set_option, "purge_delay_ms", "soon")
            said(hakmem.set_option, "purge_delay_ms", -1)
            said(hakmem.set_option, "purge_delay_ms", 10**9)
            said(hakmem.set_option, "policy", "/tmp/a")
            """, LIBRARY).splitlines(), [
                "there is no option purge_delay", r"'a\x00b' holds a zero byte", "there is no option purge_delay",
                "purge_delay_ms: 'soon' is not a number", "purge_delay_ms: -1 is out of its range", "purge_delay_ms: 1000000000 is out of its range",
                "policy can only be set when the program starts, as HAKMEM_POLICY in its environment"])

    def test_text_that_grows_between_two_calls_is_read_whole(self):
        lengths = iter((10, 1000, 1000, 5000, 5000))

        def write(room, count):
            length = next(lengths)
            if room is not None:
                room.value = b"x" * min(length, count - 1)
            return length

        self.assertEqual(_native.text_of(write), b"x" * 1000)


class NotLoaded(unittest.TestCase):
    """Without the library."""

    def test_each_function_says_so(self):
        said = python("""
            import hakmem
            for ask in (hakmem.stats, hakmem.collect, lambda: hakmem.option("stats"), lambda: hakmem.set_option("stats", 1)):
                try:
                    ask()
                except hakmem.NotLoaded as error:
                    print(error)
            """)
        self.assertEqual(said, 4 * "this process does not run under HAKMEM: start it with `hakmem run -- ..`, or call hakmem.preload() first\n")

    def test_a_module_without_its_library_says_so(self):
        self.assertRegex(python("import hakmem; hakmem.library()"), r"hakmem\.Error: \S+/hakmem/lib/libhakmem\.so is not there: ")


class Preload(unittest.TestCase):
    """The process that is executed once more, with the module where a library lies beside it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hakmem-module-")
        cls.place = cls.place_made("site")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def place_made(cls, name, library=LIBRARY):
        place = os.path.join(cls.folder, name)
        shutil.copytree(os.path.join(PACKAGE, "hakmem"), os.path.join(place, "hakmem"), ignore=shutil.ignore_patterns("__pycache__"))
        os.mkdir(os.path.join(place, "hakmem", "lib"))
        shutil.copyfile(library, os.path.join(place, "hakmem", "lib", "libhakmem.so"))
        return place

    ONCE = """
        import os, sys
        print("begins", os.getpid())
        import hakmem
        hakmem.preload({"HAKMEM_PURGE_DELAY_MS": "77", "GIVEN": "new"})
        print(hakmem.loaded(), hakmem.option("purge_delay_ms"), os.environ["GIVEN"], os.environ["LD_PRELOAD"] == hakmem.library(),
              "PYTHON_HAKMEM_PRELOAD" in os.environ, sys.flags.dont_write_bytecode, sys.warnoptions, os.environ.get("LC_CTYPE", "").upper())
        hakmem.preload()
        print("goes on")
        """

    def test_it_begins_again_once_with_its_number_its_options_and_what_is_set(self):
        for executable in PYTHONS:
            with self.subTest(executable):
                lines = python(self.ONCE, more=("-W", "error"), executable=executable, path=self.place, GIVEN="before", LC_ALL="").splitlines()
                self.assertEqual(len(lines), 4, lines)
                self.assertRegex(lines[0], r"^begins \d+$")
                self.assertEqual(lines[0], lines[1])
                self.assertRegex(lines[2], r"^True 77 before True False 1 \['error'\] ")
                self.assertEqual(lines[3], "goes on")

    def test_another_process_that_began_again_is_not_this_one(self):
        self.assertEqual(python("import hakmem; hakmem.preload(); print(hakmem.loaded())", path=self.place, PYTHON_HAKMEM_PRELOAD="1"), "True\n")

    def test_children_need_not_begin_again(self):
        program = """
            import os, sys
            import hakmem
            hakmem.preload()
            if os.environ.pop("FIRST", None):
                os.execv(sys.executable, [sys.executable, "-c", "import hakmem, os; hakmem.preload(); print(hakmem.loaded(), os.getpid())"])
            """
        self.assertRegex(python(program, path=self.place, FIRST="1"), r"^True \d+\n$")

    def test_another_thread_than_the_first_is_told_so(self):
        program = """
            import threading, hakmem
            def begin():
                try:
                    hakmem.preload()
                except hakmem.Error as error:
                    print(error)
            thread = threading.Thread(target=begin)
            thread.start()
            thread.join()
            """
        self.assertRegex(python(program, path=self.place), r"^preload\(\) is for the main thread: .*\n$")

    def test_what_was_preloaded_before_stays_behind_it(self):
        library = hakmem.__file__.replace("__init__.py", "lib/libhakmem.so")
        self.assertEqual(hakmem._preload_value(library, ""), library)
        self.assertEqual(hakmem._preload_value(library, f"a.so b.so:{library}:\tc.so:"), f"{library}:a.so:b.so:c.so")

    def test_a_path_that_the_loader_cannot_read_is_refused(self):
        place = self.place_made("a site")
        self.assertRegex(python("import hakmem; hakmem.preload()", path=place), "hakmem.Error: '.*' cannot be preloaded: its path has a blank or a colon")

    def test_a_library_that_is_not_taken_ends_in_an_error_not_in_a_loop(self):
        place = self.place_made("other", os.devnull)
        said = python("import hakmem; hakmem.preload()", path=place)
        self.assertRegex(said, r"hakmem\.NotLoaded: the loader did not take \S+/libhakmem\.so, which is in LD_PRELOAD; `hakmem doctor ")
        self.assertEqual(said.count("Traceback"), 1)

    def test_a_program_on_standard_input_is_not_lost(self):
        with tempfile.TemporaryFile() as program:
            program.write(b"import hakmem\ntry:\n    hakmem.preload()\nexcept hakmem.Error as error:\n    print(error)\n")
            program.seek(0)
            done = subprocess.run([sys.executable, "-"], stdin=program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                                  env={"PATH": os.environ["PATH"], "PYTHONPATH": self.place})
        self.assertEqual(done.stdout, "the program comes from standard input, which cannot be read twice: start it with `hakmem run`\n")


class Command(unittest.TestCase):
    """What stands between a shell and the command leaves no trace."""

    SHOW = "import os, sys\nfrom hakmem import _process\n{0}\n_process.become('/bin/sh', ['sh', '-c', {1!r}], _process.environment_given())"

    def test_signals_are_not_ignored_in_what_comes(self):
        shown = python(self.SHOW.format("", "grep SigIgn /proc/self/status"))
        self.assertEqual(int(shown.split()[1], 16) & (1 << 12 | 1 << 24), 0, shown)  # SIGPIPE, SIGXFSZ

    def test_what_was_written_comes_first(self):
        self.assertEqual(python(self.SHOW.format("print('first')", "echo second")), "first\nsecond\n")

    def test_the_locale_that_the_interpreter_chose_is_not_passed_on(self):
        show = self.SHOW.format("print(os.environ.get('LC_CTYPE', '').upper().replace('-', ''))", "echo ${LC_CTYPE-none}")
        self.assertEqual(python(show, LC_CTYPE="C.UTF-8"), "C.UTF8\nC.UTF-8\n")
        self.assertRegex(python(show), r"^(C\.UTF8)?\nnone\n$")

    def test_a_command_that_is_not_there_is_said(self):
        said = python("import runpy, sys; sys.argv[1:] = ['--version']; runpy.run_module('hakmem', run_name='__main__')")
        self.assertRegex(said, r"^hakmem: \S+/hakmem/bin/hakmem cannot be started: No such file or directory\nexit 1\n$")

    def test_arguments_are_those_of_the_interpreter(self):
        shown = python("from hakmem import _process; print(_process.arguments_given()[1:3]); import sys\n"
                       "sys.orig_argv = []; print(_process.arguments_given()[1:3])", more=("-X", "dev"))
        self.assertEqual(shown, 2 * "['-X', 'dev']\n")


class Tag(unittest.TestCase):
    """No wheel says that it runs where it does not."""

    HEADER = "  Machine:                           Advanced Micro Devices X86-64\n"

    def said(self, *lines):
        return self.HEADER + "".join(line + "\n" for line in lines)

    def refused(self, *lines):
        with self.assertRaises(Untaggable) as raised:
            file_needs(self.said(*lines))
        return str(raised.exception)

    def test_the_newest_symbol_decides(self):
        needed = file_needs(self.said(" 0x1 (NEEDED)             Shared library: [libc.so.6]", "  0x10:   Name: GLIBC_2.9  Flags: none  Version: 8",
                                      "  0x20:   Name: GLIBC_2.34  Flags: none  Version: 3", "  0x30:   Name: GLIBC_2.3.2  Flags: none  Version: 4",
                                      "  0x40:   Name: GCC_3.0  Flags: none  Version: 5"))
        self.assertEqual(needed, ("x86_64", (2, 34)))

    def test_none_is_older_than_what_tags_begin_with(self):
        self.assertEqual(file_needs(self.said("  0x10:   Name: GLIBC_2.2.5  Flags: none  Version: 8")), ("x86_64", (2, 17)))

    def test_relative_relocations_need_a_loader_that_knows_them(self):
        self.assertEqual(file_needs(self.said("  0x10:   Name: GLIBC_ABI_DT_RELR  Flags: none  Version: 8"))[1], (2, 36))

    def test_what_no_tag_promises_is_refused(self):
        self.assertEqual(self.refused(" 0x1 (NEEDED)             Shared library: [libssl.so.3]"), "it needs libssl.so.3, which no tag promises")
        self.assertEqual(self.refused(" 0x1 (NEEDED)             Shared library: [libc.so]"), "it needs libc.so, which no tag promises")  # musl
        for version in ("GLIBC_PRIVATE", "GLIBCXX_3.4", "GCC_14.0"):
            self.assertEqual(self.refused(f"  0x10:   Name: {version}  Flags: none  Version: 8"), f"the symbol version {version} is promised by no tag")
        self.assertEqual(self.refused("      Properties: x86 ISA needed: x86-64-baseline, x86-64-v3"), "it needs a processor of x86-64-v3")
        with self.assertRaises(Untaggable):
            file_needs("  Machine:                           RISC-V\n")

    def test_the_built_library_has_one(self):
        self.assertRegex(platform_tag([LIBRARY]), r"^manylinux_2_[1-9][0-9]_(x86_64|aarch64)$")

    def test_it_is_not_older_than_the_symbols_by_another_reader(self):
        if not shutil.which("objdump"):
            self.skipTest("objdump is missing")
        table = subprocess.run(["objdump", "-T", LIBRARY], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
        newest = max(int(word.split(".")[1].rstrip(")")) for word in table.split() if word.startswith("(GLIBC_2."))
        self.assertEqual(platform_tag([LIBRARY]).split("_")[2], str(max(newest, 17)))


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        print(f"{LIBRARY} is missing")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=1)
