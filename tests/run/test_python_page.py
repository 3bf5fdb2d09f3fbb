"""The page on the Python API, run block by block in notebooks: its calls work, and `start` prints nothing."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from rowkind.service.dev.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OTHER_SESSION = "SparkSession.builder"


def _ran(blocks: list[str], folder: Path, broker: Broker) -> list[nbformat.NotebookNode]:
    """Run the blocks in a kernel of their own, and return the cells with their outputs."""
    cells = [nbformat.v4.new_code_cell(block) for block in blocks]
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(folder)}}
    environment = os.environ | {"KAFKA": broker.bootstrap_servers, "PYTHONPATH": str(ROOT)}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute(env=environment)
    return cells


def _printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")


def _html(cell: nbformat.NotebookNode) -> str:
    return "".join(output["data"].get("text/html", "") for output in cell.outputs if "data" in output)


def test_every_block_of_the_page_works_in_a_notebook(broker: Broker, tmp_path: Path) -> None:
    """Pictures, tables and a progress bar appear, only the page's own `print` prints, and the results are right."""
    shutil.copytree(ROOT / "examples" / "orders-payments", tmp_path / "orders-payments")
    found = BLOCK.findall((ROOT / "docs" / "reference" / "python.md").read_text())
    python = [text for kind, text in found if kind == "python"]
    cells = _ran([each for each in python if OTHER_SESSION not in each] + ["print(result)"], tmp_path, broker)
    *shown, text = cells
    assert [_printed(text)] == [each for kind, each in found if kind == "text"]

    by_text = {
        name: next(cell for cell in shown if name in cell.source) for name in ("job = ", "job.explain", "start()")
    }
    assert "<svg" in _html(by_text["job = "])
    assert "<iframe" in _html(by_text["job.explain"])
    started = _html(by_text["start()"])
    assert "ready, 1 of 1 row read" in started
    assert "<td" in started
    assert not _printed(by_text["start()"])
    # Rows of different partitions have no order.
    printed = [sorted(_printed(cell).splitlines()) for cell in shown if _printed(cell)]
    assert printed == [["+I 1 Ada", "+I 2 Blaise"], ["+I Ada", "+I Blaise", "+I Grace"]]

    (other,) = _ran([each for each in python if OTHER_SESSION in each], tmp_path, broker)
    assert re.search(r"^(idle|running)$", _printed(other), re.MULTILINE), _printed(other)
    assert " WARN " not in _printed(other).partition("NativeCodeLoader")[2]
