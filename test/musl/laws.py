"""laws.py - the laws of the built library (test/laws) hold for musl: what it exports and needs, fast paths, thread-local storage."""
import os
import subprocess
import sys

from _musl import ROOT, arguments

build = arguments().build
broken = [law for law in ("exports", "fastpath", "tls")
          if subprocess.run([sys.executable, os.path.join(ROOT, "test", "laws", f"{law}.py"), "--build", build], check=False).returncode]
sys.exit(f"broken: {' '.join(broken)}" if broken else 0)
