"""emulated.py - run a cross-built program as if it were native: emulated.py PROGRAM EMULATOR...

qemu-user says on standard error that its program died of a signal, which the program itself did not say.
That line is taken off, and we die of the same signal.
"""
import os
import resource
import signal
import subprocess
import sys

program, emulator = sys.argv[1], sys.argv[2:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
done = subprocess.run(emulator + [program], stderr=subprocess.PIPE)
for line in done.stderr.splitlines(keepends=True):
    if not line.startswith(b"qemu: uncaught target signal"):
        os.write(2, line)
if done.returncode < 0:
    signal.signal(-done.returncode, signal.SIG_DFL)
    os.kill(os.getpid(), -done.returncode)
sys.exit(done.returncode)
