"""The Python that a local session of somebody's own has for its workers, which need not be the one that runs here.

PySpark takes PYSPARK_PYTHON or, without it, the `python3` of the path: in a notebook, or wherever a virtual
environment is used without being activated, that is another one.
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
    """Raise SparkStartError unless the Python of this name has what this process has."""
    path = shutil.which(program)
    if path is not None and _is_this(path):
        return
    if trouble := "there is no such program" if path is None else _trouble(path):
        raise SparkStartError(
            f"Spark would run its Python workers with {path or program}, which is not this process's Python: {trouble}."
            '\nSet os.environ["PYSPARK_PYTHON"] = sys.executable before the session is made; one that is there already '
            "is to be stopped and made anew."
        )


def versions() -> list[tuple[str, str]]:
    """Of what the workers and this process must have in common, by name."""
    _, libraries = environment()
    return [("rowkind", version()), *libraries]


def _is_this(path: str) -> bool:
    # The programs of all virtual environments may lead to one file, so that is not enough.
    own = Path(sys.executable)
    return Path(path).parent == own.parent and own.samefile(path)


def _trouble(path: str) -> str:
    """What a Python lacks or has otherwise than this one, empty where nothing is."""
    try:
        asked = subprocess.run(  # noqa: S603 - what Spark is about to run
            [path, "-c", _TELLS], capture_output=True, text=True, timeout=_MOST_SECONDS, check=False
        )
        there = dict(json.loads(asked.stdout))
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not run ({error})"
    except ValueError:
        return asked.stderr.strip().rpartition("\n")[2] or "it says nothing"
    differs = (f"it has {name} {there.get(name)}, not {own}" for name, own in versions() if there.get(name) != own)
    return next(differs, "")
