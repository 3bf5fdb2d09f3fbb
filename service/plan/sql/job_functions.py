"""Loads the job's functions, and marks the calls of these functions in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sqlglot
from sqlglot import exp

from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.model import Job
from rowkind.service.plan.scalar.functions import FUNCTIONS
from rowkind.service.plan.scalar.job_functions import FUNCTION
from rowkind.service.plan.scalar.types import duckdb
from rowkind.service.plan.sql.dialect import RowkindSql
from rowkind.service.plan.sql.generators import NAMES
from rowkind.service.python.code import Code
from rowkind.service.python.errors import FunctionError
from rowkind.service.python.function import PythonFunction


def job_functions(job: Job) -> Mapping[str, PythonFunction]:
    """Load a job's functions, and return them, keyed by name in upper case. Raises JobError."""
    code = job.python()
    if code is None:
        return {}
    found, problems = {}, []
    for name in job.functions:
        try:
            found[name.upper()] = _function(job, name, code)
        except FunctionError as error:
            problems.append(Problem(job.line("functions", name), f"functions.{name}", str(error)))
    if problems:
        raise JobError(str(job.file), problems)
    return found


def with_functions(tree: exp.Expr, functions: Mapping[str, PythonFunction]) -> exp.Expr:
    """Attach to each call of one of the `functions` the function that it calls, and return the tree."""
    for node in tree.find_all(exp.Anonymous) if functions else ():
        if (function := functions.get(node.name.upper())) is not None:
            node.set(FUNCTION, function)
    return tree


def _function(job: Job, name: str, code: Code) -> PythonFunction:
    of = job.functions[name]
    written = sqlglot.parse_one(f"SELECT {name}(x)", read=RowkindSql).expressions[0]
    if name.upper() in FUNCTIONS or name.upper() in NAMES or not isinstance(written, exp.Anonymous):
        raise FunctionError(f"{name.upper()} is the name of an SQL function: give your function another name")
    try:
        parameters, gives = tuple(map(duckdb, of.takes)), duckdb(of.result)
    except KeyError as error:
        raise FunctionError(f"type {error.args[0]} cannot be used in expressions") from None
    function = PythonFunction(
        name=name,
        kind=of.kind,
        module=of.module,
        attribute=of.attribute,
        arguments=of.takes,
        result=of.result,
        deterministic=of.deterministic,
        called_on_null=of.called_on_null,
        code=code,
        version=of.version or code.digest,
        parameters=parameters,
        gives=gives,
        accumulator=of.state,
        views=of.view_types,
    )
    found = function.loaded()
    return replace(function, retracts=hasattr(found, "retract"), merges=hasattr(found, "merge"))
