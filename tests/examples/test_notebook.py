"""The example notebook."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_notebook_runs_and_shows_plan_and_rows() -> None:
    """Every cell runs, the plan is shown as a page, and the payment ends up with the second order."""
    found = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in found.cells), "clear the outputs before you commit the notebook"
    run = copy.deepcopy(found)
    NotebookClient(run, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}).execute()

    shown = {cell.id: cell.outputs[-1].data for cell in run.cells if cell.get("outputs")}
    assert shown["load"]["text/plain"].startswith("<Job orders-payments")
    assert "<iframe" in shown["explain"]["text/html"]
    assert shown["changes"]["text/html"].count("<tr") == 1 + 8
    left = shown["folded"]["text/html"].partition("<tbody>")[2].split("</tr>")[:2]
    assert [("Ada" in row, "card" in row) for row in left] == [(True, False), (False, True)]
