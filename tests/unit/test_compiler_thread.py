"""The compiler's thread ends with the process, whatever it is doing."""

import subprocess
import sys

PROGRAM = """
import time
from moonfed.engines.cuda import compiler

class Endless:
    def run(self):
        print("compiling", flush=True)
        while True:
            sum(range(1000))

thread = compiler._thread()
thread.waiting.put(Endless())
thread.waiting.put(Endless())
while not thread.is_alive():
    time.sleep(0.01)
time.sleep(0.2)
print("done", flush=True)
"""


def test_a_process_ends_while_something_is_compiled():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["compiling", "done"], "")
