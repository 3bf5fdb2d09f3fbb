"""Makes the archive of classes (`service.spark.jvm`): `python -m rowkind.service.processes.class_archive`.

It comes about by itself with the first job. An image has it built in, though, by `--pack`, because a job in a container
has no next start there; and tests have it before they start sessions by the dozen.
"""

from __future__ import annotations

import sys
from importlib.resources import as_file, files

from rowkind.service.job.load import load
from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial
from rowkind.service.query.trial_on_spark import on_spark
from rowkind.service.spark.jvm import end, pack


def main() -> None:
    """Run a query of an example on Spark, and wait until the JVM has written down which classes that took."""
    with as_file(files("rowkind") / "examples" / "shop") as folder:
        job = load(folder / "job.yaml")
        with (folder / "changes.jsonl").open() as changes:
            batches = trial.read(job, changes, "changes.jsonl", batch_rows=50)
    for _ in on_spark(print)(job, plan(job, "top_products"), batches):
        pass
    end()


if __name__ == "__main__":
    main()
    if sys.argv[1:] == ["--pack"]:
        pack()
