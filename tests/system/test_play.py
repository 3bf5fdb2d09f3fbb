"""`rowkind play` and `rowkind try --watch` as processes: their output, their limits and their end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from rowkind.service.web.play.worker import Worker
from tests.unit.run.test_play import CHANGES, JOB, change

ROWKIND = str(Path(sys.executable).with_name("rowkind"))
SECONDS = 60.0


@contextmanager
def _started(folder: Path, *options: str):  # type: ignore[no-untyped-def]
    """Start a command in a folder with a job and its changes; yield the process and the file with its output."""
    (folder / "job.yaml").write_text(JOB)
    (folder / "changes.jsonl").write_text(CHANGES)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen([ROWKIND, *options], cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process, folder / "output"
        finally:
            process.kill()
            process.wait()
