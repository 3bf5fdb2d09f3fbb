"""Rowkind keeps the results of streaming SQL queries over Kafka changelogs up to date, on PySpark.

    rowkind.Job          a job file: check it, explain it, try it on a few changes
    rowkind.client       produce to a job's tables, and read what comes out of its sinks

    rowkind.operators    what a stateful operator is: changes in, changes out, over columns
    rowkind.avro         rows as Avro
    rowkind.service      everything that touches the world: job file, plan, Spark, Kafka, command line

The last three are the folders of these names at the top of the repository, linked from here.
"""

from typing import TYPE_CHECKING, Any

from rowkind.errors import RowkindError
from rowkind.version import version

if TYPE_CHECKING:
    from rowkind.service.library.job import LoadedJob as Job

__all__ = ["Job", "RowkindError", "version"]


def __getattr__(name: str) -> Any:
    """`Job`, which is loaded when it is asked for: no command and no worker is to load all of it first."""
    if name == "Job":
        from rowkind.service.library.job import LoadedJob  # noqa: PLC0415 -- see above

        return LoadedJob
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
