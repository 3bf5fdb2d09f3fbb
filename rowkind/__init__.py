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
    from rowkind import client
    from rowkind.service.library.job import LoadedJob as Job

    __version__: str

__all__ = ["Job", "RowkindError", "__version__", "client", "version"]


# A type checker that saw it would let every name pass.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What is loaded when it is asked for: no command and no worker is to load all of it first."""
        # ruff: noqa: PLC0415 -- as said
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
    """All names, also of what is not loaded yet."""
    return sorted({*globals(), *__all__})
