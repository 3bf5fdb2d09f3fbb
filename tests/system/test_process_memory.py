"""The memory of a job's processes."""

from __future__ import annotations

import json
import subprocess
import sys

HELD = 50_000_000
# A separate process without other child processes.
PROGRAM = f"""
import json, subprocess, sys
from rowkind.service.monitoring.process_memory import memory

alone = memory()
child = "import os, sys; held = os.urandom({HELD}); os.fork() or print(flush=True); sys.stdin.read()"
with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as below:
    below.stdout.readline()
    together = memory()
    below.communicate()
print(json.dumps([alone, together]))
"""


def test_what_a_process_below_this_one_takes_is_counted_once() -> None:
    """Pages that a child process shares with its own child are counted once."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    alone, together = json.loads(ran.stdout)
    assert alone["python"] == alone["java"] == together["java"] == 0
    assert HELD < together["python"] < 2 * HELD
    assert 1_000_000 < alone["command"] < HELD
