"""A command on a terminal of 80 columns and 24 lines, as a person starts it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Self

from tests.run.process import PATIENCE, until

COLUMNS, LINES = 80, 24
_IN_CONTROL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A program that lets a terminal send signals to a command, and becomes the command."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A command, started by `with`, and all that it has written; if it is still running at the end, it is killed."""

    def __init__(self, *command: str | Path) -> None:
        self._command = [sys.executable, "-c", _IN_CONTROL, *map(str, command)]
        self.said = ""

    def __enter__(self) -> Self:
        self._screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            self._command,
            cwd="/",
            env=os.environ | {"TERM": "xterm"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._screen)

    def until(self, words: str) -> re.Match[str]:
        """Return the match as soon as the command has written these words, a regular expression."""
        found = None

        def written() -> bool:
            nonlocal found
            over = not self._reader.is_alive()
            found = re.search(words, self.said)
            assert found or not over, f"ended before {words}\n{self.said}"
            return found is not None

        until(written, words, lambda: self.said)
        assert found is not None
        return found

    def type(self, text: str, end: str = "\n") -> None:
        """Type a line."""
        os.write(self._screen, f"{text}{end}".encode())

    def press_ctrl_c(self) -> None:
        """Send SIGINT to all processes in the foreground, as a terminal does."""
        self.type("\x03", end="")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """Return the exit code, when all that the command writes has been read."""
        self._reader.join(PATIENCE)
        assert not self._reader.is_alive(), f"still running after {PATIENCE:.0f} s\n{self.said}"
        return self._process.wait(PATIENCE)

    def _read(self) -> None:
        # Linux reports an error when no process has the terminal any more.
        with suppress(OSError):
            while written := os.read(self._screen, 1 << 16):
                self.said += _ESCAPES.sub("", written.decode(errors="replace"))
