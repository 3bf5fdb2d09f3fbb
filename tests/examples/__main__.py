"""`python -m tests.examples` writes the events of the Nexmark example anew."""

from __future__ import annotations

from tests.examples.jobs import EXAMPLES
from tests.examples.test_auctions import stored

(EXAMPLES / "nexmark" / "changes.jsonl").write_text(stored())
