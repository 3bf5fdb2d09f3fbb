"""A job's functions in a process that has only the shipped archive."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rowkind.service.python.code import Code

MODULE = """
import pyarrow.compute as pc

def named(x):
    return x.fill_null("nobody")

def zero(x):
    return pc.divide(x, 0)
"""
CALL = """
import os, pickle, pyarrow, sys
from rowkind.service.python.code import describe
sys.path += [os.environ["ENTRY"]] if os.environ["ENTRY"] else []
code = pickle.load(open("code.pickle", "rb"))
print(code.load("own", "named")(pyarrow.array([None, "x"])).to_pylist())
try:
    code.load("own", "zero")(pyarrow.array([1]))
except Exception as error:
    print(describe(error, code.place))
"""


@pytest.mark.parametrize("entry", ["", "./"])
@pytest.mark.parametrize("kind", ["folder", "wheel"])
def test_the_code_is_imported_from_the_archive_that_was_shipped(tmp_path: Path, kind: str, entry: str) -> None:
    """With only the archive, in its folder or on Spark's path, a process imports and calls the function."""
    path = tmp_path / "code"
    path.mkdir()
    (path / "own.py").write_text(MODULE)
    if kind == "wheel":
        path = tmp_path / "own-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("own.py", MODULE)
    code = Code.at(path)
    away = tmp_path / "away"
    away.mkdir()
    code.pack(away / code.archive)
    (away / "code.pickle").write_bytes(pickle.dumps(Code("/nowhere", code.digest)))

    found = subprocess.run(
        [
            sys.executable,
            "-c",
            CALL,
        ],
        cwd=away,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "ENTRY": entry and entry + code.archive},
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.splitlines() == [
        "['nobody', 'x']",
        "ArrowInvalid: divide by zero, at own.py:8: return pc.divide(x, 0)",
    ]
