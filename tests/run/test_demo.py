"""`rowkind demo` from the checkout: it ends by itself where nobody looks, and leaves nothing if it is stopped early."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.processes import having
from tests.run.process import Rowkind
from tests.terminal import Terminal


def test_without_a_terminal_it_ends_after_the_comparison(tmp_path: Path, short_folder: Path) -> None:
    """As in CI: the results equal those of DuckDB, and what the demo has started and written is gone."""
    with Rowkind(tmp_path, "demo", TMPDIR=str(short_folder)) as demo:
        ended = demo.ended()
        assert not demo.members()
    assert ended.code == 0, ended.error
    assert "order-payments: all 5,980 rows equal" in ended.output
    assert "paid-orders: all 4,185 rows equal" in ended.output
    assert not list(short_folder.iterdir())


@pytest.mark.parametrize(
    ("number", "when"), [(signal.SIGTERM, "Starting the job"), (signal.SIGHUP, r"order-payments: [\d,]+ rows from")]
)
def test_a_signal_ends_it_at_any_time(number: signal.Signals, when: str, short_folder: Path) -> None:
    """Without an error, and nothing is left: from a service manager at its start, from a terminal that is closed."""
    mark = f"ROWKIND_TEST={uuid4().hex}"
    with Terminal("env", f"TMPDIR={short_folder}", mark, sys.executable, "-m", "rowkind", "demo") as demo:
        demo.until(when)
        demo.signal(number)
        assert demo.ended() == 0, demo.said
    assert "Traceback" not in demo.said
    assert not having(mark)
    assert not list(short_folder.iterdir())
