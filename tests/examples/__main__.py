"""`python -m tests.examples` writes the generated changes files of the examples."""

from __future__ import annotations

from tests.examples import test_auctions, test_trade
from tests.examples.jobs import EXAMPLES

(EXAMPLES / "nexmark" / "changes.jsonl").write_text(test_auctions.stored())
(EXAMPLES / "tpch" / "changes.jsonl").write_text(test_trade.stored())
