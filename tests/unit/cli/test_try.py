"""`rowkind try` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_JOB = {
    "job": "tried",
    "tables": {"t": {"topic": "t", "mode": "append", "columns": {"x": "INT"}}},
    "sinks": {"o": {"topic": "o", "mode": "append", "sql": "SELECT fx(x) AS y FROM t"}},
    "code": "functions",
    "functions": {"fx": {"python": "fx:f", "arguments": ["INT"], "returns": "INT", "deterministic": True}},
}
_CODE = """
def f(x):
    import pandas as pd
    return pd.Series(x.to_pandas() + 1)
"""


def test_functions_have_pandas(tmp_path: Path) -> None:
    """A function imports pandas, takes Arrow's columns over to it and gives some of its own."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "fx.py").write_text(_CODE)
    (tmp_path / "job.yaml").write_text(json.dumps(_JOB))
    (tmp_path / "changes.jsonl").write_text(json.dumps({"table": "t", "op": "+I", "row": {"x": 1}}))
    command = [sys.executable, "-m", "rowkind", "try", str(tmp_path / "job.yaml"), "--fold"]

    done = subprocess.run(
        [*command, "--changes", str(tmp_path / "changes.jsonl")], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines() == ['{"row": {"y": 2}}'], done.stderr
