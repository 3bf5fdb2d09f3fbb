"""Checks which Python the workers use in the caller's own local session: it may differ from the current Python.

PySpark uses PYSPARK_PYTHON or, if that is not set, the `python3` on PATH. In a notebook, or with a virtual environment
that is not activated, this may be a different Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from rowkind.service.processes.executors import environment
from rowkind.service.spark.errors import SparkStartError
from rowkind.version import version

_TELLS = "import json; from rowkind.service.processes import interpreter; print(json.dumps(interpreter.versions()))"
_MOST_SECONDS = 60.0


def check(program: str) -> None:
    """Raise SparkStartError unless the Python called `program` has the same versions as this process."""
    path = shutil.which(program)
    if path is not None and _is_this(path):
        return
    if trouble := "there is no such program" if path is None else _trouble(path):
        raise SparkStartError(
            f"Spark would run its Python workers with {path or program}, which is not this process's Python: {trouble}."
            '\nSet os.environ["PYSPARK_PYTHON"] = sys.executable before the session is created. If there is a session '
            "already, stop it and create it again."
        )


def versions() -> list[tuple[str, str]]:
    """Return the versions that workers must have in common with this process, by name."""
    _, libraries = environment()
    return [("rowkind", version()), *libraries]


def _is_this(path: str) -> bool:
    # The programs of all virtual environments may be links to the same file, so the folder must be the same too.
    own = Path(sys.executable)
    return Path(path).parent == own.parent and own.samefile(path)


def _trouble(path: str) -> str:
    """Return how another Python differs from the running Python, or "" if it does not differ."""
    try:
        asked = subprocess.run(  # noqa: S603 - what Spark is about to run
            [path, "-c", _TELLS], capture_output=True, text=True, timeout=_MOST_SECONDS, check=False
        )
        there = dict(json.loads(asked.stdout))
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not run ({error})"
    except ValueError:
        return asked.stderr.strip().rpartition("\n")[2] or "it prints no error"
    differs = (f"it has {name} {there.get(name)}, not {own}" for name, own in versions() if there.get(name) != own)
    return next(differs, "")
