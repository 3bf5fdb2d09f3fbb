"""Write the expected job files: `python -m tests.flink`."""

from __future__ import annotations

from tests.flink.import_cases import SCRIPTS, made_of

for script in SCRIPTS:
    script.with_suffix(".yaml").write_text(made_of(script).text)
