"""What the processes of a job take."""

from __future__ import annotations

import subprocess
import sys

from rowkind.service.run.process_memory import memory

HELD = 50_000_000


def test_what_a_process_below_this_one_takes_is_counted_once() -> None:
    """Its own child has the same pages, which do not count again."""
    before = memory()
    script = f"import os, sys; held = os.urandom({HELD}); os.fork() or print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        grown = memory()["python"] - before["python"]
        child.communicate()
    assert HELD < grown < 2 * HELD
    assert memory()["java"] == before["java"] == 0
    assert before["command"] > HELD
