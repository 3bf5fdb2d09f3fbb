"""Creates the class archive (`service.spark.java_classes`): `python -m rowkind.service.processes.class_archive`.

The first job on a machine creates the archive automatically. An image includes the archive (`--pack`), because a job
does not start a second time in the same container. Tests create the archive before they start dozens of sessions.
"""

from __future__ import annotations

import sys
from importlib.resources import as_file, files

from rowkind.service.job.load import load
from rowkind.service.plan.pipeline import plan
from rowkind.service.query import trial
from rowkind.service.query.trial_on_spark import on_spark
from rowkind.service.spark.java_classes import pack
from rowkind.service.spark.jvm import end, has_run_a_batch


def main() -> None:
    """Run an example's query on Spark, and wait until the JVM has archived the classes that it loaded."""
    with as_file(files("rowkind") / "examples" / "shop") as folder:
        job = load(folder / "job.yaml")
        with (folder / "changes.jsonl").open() as changes:
            batches = trial.read(job, changes, "changes.jsonl", batch_rows=50)
    for _ in on_spark(print)(job, plan(job, "top_products"), batches):
        pass
    has_run_a_batch()
    end()


if __name__ == "__main__":
    main()
    if sys.argv[1:] == ["--pack"]:
        pack()
