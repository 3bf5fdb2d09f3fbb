"""Rowkind keeps the results of streaming SQL queries over Kafka changelogs up to date, on PySpark.

    rowkind.Job          a job: check it, explain it, try it on a few changes, run it, use its topics
    rowkind.client       produce to a job's tables, and read its sinks

    rowkind.operators    the stateful operators: changes in, changes out, in columnar form
    rowkind.avro         rows in Avro format
    rowkind.service      the service: job file, plan, Spark, Kafka, command line

The last three packages are symbolic links to folders at the top of the repository.
"""

from typing import TYPE_CHECKING, Any

from rowkind.errors import RowkindError
from rowkind.version import version

if TYPE_CHECKING:
    from rowkind import client
    from rowkind.service.library.job import LoadedJob as Job

    __version__: str

__all__ = ["Job", "RowkindError", "__version__", "client", "version"]


# Hidden from type checkers, which would otherwise accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a name on first use, so that commands and workers do not load everything at their start."""
        # ruff: noqa: PLC0415 -- see the docstring
        match name:
            case "Job":
                from rowkind.service.library.job import LoadedJob

                return LoadedJob
            case "client":
                from importlib import import_module

                return import_module("rowkind.client")
            case "__version__":
                return version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names, including those not loaded yet."""
    return sorted({*globals(), *__all__})
