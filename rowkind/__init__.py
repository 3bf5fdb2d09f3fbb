"""Rowkind keeps the results of streaming SQL queries over Kafka changelogs up to date, on PySpark.

    rowkind.operators    what a stateful operator is: changes in, changes out, over columns
    rowkind.avro         rows as Avro
    rowkind.service      everything that touches the world: job file, plan, Spark, Kafka, command line

The three are the folders of these names at the top of the repository, linked from here.
"""

from rowkind.errors import RowkindError
from rowkind.version import version

__all__ = ["RowkindError", "version"]
