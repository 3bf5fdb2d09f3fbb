"""The program that Spark starts instead of Python. The code runs in a forked process (`service.processes.forks`).

The program imports almost nothing, and starts in 0.01 s. If a signal kills the forked process, the same signal kills
this program. If this program is killed, the forked process exits. If no process answers the request to fork, this
program becomes Python itself.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from array import array


def main() -> None:
    """Run `sys.argv` in another process, and exit as that process does."""
    environment = b"\0".join(name + b"=" + value for name, value in os.environb.items())
    folder = os.getcwdb()  # noqa: PTH109 - pathlib takes longer to load than all of this
    said = b"\0\0".join([folder, b"\0".join(map(os.fsencode, sys.argv[1:])), environment])
    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        line.connect(os.environ["ROWKIND_STAND_IN"])
        line.sendmsg([b"%8d" % len(said)], [(SOL_SOCKET, SCM_RIGHTS, array("i", [0, 1, 2]))])
        line.sendall(said)
        forked = line.recv(1)
    except OSError:
        forked = b""
    if not forked:
        python = os.environ["ROWKIND_PYTHON"]
        os.execv(python, [python, *sys.argv[1:]])  # noqa: S606 - as Spark would have
    # Only the child may use Spark's input and output.
    os.close(0)
    os.close(1)
    code = int(line.recv(8) or 1)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
