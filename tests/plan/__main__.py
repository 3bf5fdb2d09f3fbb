"""`python -m tests.plan` writes what the planner says now into the cases, for the reader of the diff to judge."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.plan.cases import cases

for case in cases():
    with tempfile.TemporaryDirectory() as folder:
        case.write(case.outcome(Path(folder)))
