"""`python -m tests.plan` writes the planner's current output into the cases; review the diff."""

from __future__ import annotations

from tests.plan import plan_document, wording
from tests.plan.cases import cases
from tests.plan.constructs import PAGE, constructs
from tests.plan.documents import PATHS, document

for case in cases():
    case.write(case.outcome())
for name, written in wording.FILES.items():
    (wording.FOLDER / name).write_text(written())
for path in PATHS:
    path.write_text(document(path))
PAGE.write_text(constructs())
plan_document.PAGE.write_text(plan_document.page())
