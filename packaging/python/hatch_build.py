"""hatch_build.py - what hatchling asks when it builds the wheel: which files beside the module, and which tag.

The files are those of `cmake --install`, by component. Within the package's folder they lie as below any prefix, bin/hakmem and
lib/libhakmem.so, so the command finds the library as it does elsewhere; the pages and completions go to the environment's share/.
HAK_BUILD names the build folder, else it is build/release.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from platform_tag import platform_tag  # noqa: E402  (after the path)


class WheelHook(BuildHookInterface):
    PLUGIN_NAME = "custom"
    prefix = None

    def initialize(self, version, build_data):
        if self.target_name != "wheel":
            raise RuntimeError("only wheels are made here: their sources are the whole repository")
        if version == "editable":
            return
        build = os.path.abspath(os.environ.get("HAK_BUILD") or os.path.join(HERE, "..", "..", "build", "release"))
        if not os.path.exists(os.path.join(build, "cmake_install.cmake")):
            raise RuntimeError(f"{build} holds no build; run make first")
        self.prefix = tempfile.mkdtemp(prefix="hakmem-wheel-")
        for component in ("library", "tool"):
            subprocess.run(["cmake", "--install", build, "--strip", "--prefix", self.prefix, "--component", component], check=True,
                           stdout=subprocess.DEVNULL)
        release = self.metadata.version
        library = glob.glob(os.path.join(self.prefix, "lib*", "**", f"libhakmem.so.{release}"), recursive=True)
        command = os.path.join(self.prefix, "bin", "hakmem")
        if not library or not os.path.exists(command):
            raise RuntimeError(f"{build} has no {'hakmem command' if library else 'libhakmem.so of version ' + release}; run make first")

        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag([library[0], command])}"
        include = build_data["force_include"]
        include[library[0]] = "hakmem/lib/libhakmem.so"
        include[command] = "hakmem/bin/hakmem"
        share = os.path.join(self.prefix, "share")
        for where, _, names in os.walk(share):
            below = os.path.relpath(where, share)
            if below.split(os.sep)[0] != "doc":
                for name in names:
                    include[os.path.join(where, name)] = os.path.join(f"hakmem-{release}.data", "data", "share", below, name)

    def finalize(self, version, build_data, artifact_path):
        if self.prefix:
            shutil.rmtree(self.prefix, ignore_errors=True)
