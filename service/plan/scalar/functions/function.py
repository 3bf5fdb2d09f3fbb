"""Scalar functions: their names, parameters and result types, and how they are written in DuckDB SQL.

The function reference is generated from the same entries. Several functions may share a name if their parameters
differ; a call refers to the first of them that accepts the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.compiler import Compiler
from rowkind.service.plan.scalar.typed import Typed, constant, converted, nullable, opened
from rowkind.service.plan.scalar.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LOCAL,
    NULL,
    STRING,
    TIMESTAMP,
    computable,
    family,
    with_null,
)

ResultType = Type | Callable[[Sequence[Typed]], Type] | str
"""A result's type. If the type is nullable, the result may be NULL for any arguments; otherwise, the result is NULL
only if an argument is NULL. A string is only a description for the reference; the function that writes the SQL returns
the type.
"""

Write = str | Callable[[Sequence[Typed]], "str | Typed"]
"""DuckDB SQL, or a function that writes it. In the SQL, {0}, {1}, … stand for single arguments, and {all} for all of
them. A function that returns a `Typed` also determines the result type.
"""


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar function.

    - `names`: its names, separated by spaces.
    - `takes`: the kinds of its parameters (keys of `KINDS`), separated by commas. `...` after the last kind means one
      or more arguments of that kind.
    - `keeps_null`: whether the result is NULL if an argument is NULL. If False, only the type in `gives` determines
      whether the result may be NULL.
    - `note`: differences from Spark or Flink, and restrictions.
    - `close`: whether the last digit of a DOUBLE result may differ from Spark's, which uses a different library.
    """

    names: str
    takes: str
    gives: ResultType
    sql: Write
    note: str = ""
    keeps_null: bool = True
    close: bool = False

    @property
    def kinds(self) -> list[str]:
        """The parameters' kinds; a kind that may be repeated ends in `...`."""
        return self.takes.split(", ") if self.takes else []

    def takes_count(self, count: int) -> bool:
        """Return whether the function accepts this number of arguments."""
        kinds = self.kinds
        return count >= len(kinds) if kinds and kinds[-1].endswith("...") else count == len(kinds)

    def kind(self, number: int) -> str:
        """Return the kind of the parameter that takes an argument, given the argument's position."""
        return self.kinds[min(number, len(self.kinds) - 1)].removesuffix("...")

    def call(self, arguments: Sequence[Typed]) -> Typed:
        """Compile a call. The parameters' kinds have already accepted the arguments."""
        texts = [argument.sql for argument in arguments]
        sql = self.sql.format(*texts, all=", ".join(texts)) if isinstance(self.sql, str) else self.sql(arguments)
        if isinstance(sql, Typed):
            return sql
        assert not isinstance(self.gives, str), "the caller passes a Typed if the type depends on the SQL"
        given = self.gives if isinstance(self.gives, Type) else self.gives(arguments)
        return Typed(sql, nullable(given, *arguments) if self.keeps_null and not given.nullable else given)


@dataclass(frozen=True)
class Function(Typed):
    """A lambda (->) as an argument.

    `apply` takes the types of the lambda's arguments, and returns the lambda's parameters and its compiled body. It
    raises Refusal.
    """

    apply: Callable[[Sequence[Type]], tuple[str, Typed]] = lambda _: ("", Typed("NULL", NULL))


@dataclass(frozen=True)
class ParameterKind:
    """A kind of parameter. `accept` converts an argument to the parameter's type, or returns None to reject it.

    `words` is the kind's name in messages, and `advice` is the end of a message about a rejected argument.
    """

    words: str
    accept: Callable[[exp.Expr, Typed], Typed | None]
    advice: str = ""


def _of(wanted: Type, *families: str) -> Callable[[exp.Expr, Typed], Typed | None]:
    """Return a function that accepts values of the given families, and converts them to the `wanted` type.

    If the wanted type is a date or time, the function also accepts a string literal.
    """

    def accept(node: exp.Expr, value: Typed) -> Typed | None:
        found = family(value.type)
        if found == "null" or found in families:
            return converted(value, wanted)
        if value.literal is not None and found == "string" and family(wanted) in ("date", "timestamp", "local"):
            return Typed(constant(node, value.literal, wanted), wanted)
        return None

    return accept


def _keep(null: Type, *families: str) -> Callable[[exp.Expr, Typed], Typed | None]:
    """Return a function that accepts values of the given families, and returns them unchanged."""

    def accept(_: exp.Expr, value: Typed) -> Typed | None:
        found = family(value.type)
        return converted(value, null) if found == "null" else value if found in families else None

    return accept


def _int(_: exp.Expr, value: Typed) -> Typed | None:
    if family(value.type) == "null":
        return converted(value, INT)
    # Like CAST(… AS INT), this fails for numbers of more than 32 bits.
    return converted(value, INT) if family(value.type) == "integer" else None


def _literal(type_: Type) -> Callable[[exp.Expr, Typed], Typed | None]:
    return lambda _, value: value if value.literal is not None and value.type == type_ else None


def _any(_: exp.Expr, value: Typed) -> Typed | None:
    return value if family(value.type) is not None else None


def _value(_: exp.Expr, value: Typed) -> Typed | None:
    return opened(value) if computable(value.type) else None


def _nested(kind: str) -> Callable[[exp.Expr, Typed], Typed | None]:
    return lambda _, value: value if value.type.kind == kind else None


def _opened(kind: str, element: str = "") -> Callable[[exp.Expr, Typed], Typed | None]:
    def accept(_: exp.Expr, value: Typed) -> Typed | None:
        if value.type.kind != kind or (element and value.type.element.kind != element):
            return None
        return opened(value)

    return accept


def _function(_: exp.Expr, value: Typed) -> Typed | None:
    return value


def _decimal(_: exp.Expr, value: Typed) -> Typed | None:
    return value if family(value.type) == "decimal" else None


_NUMBERS = ("integer", "decimal", "float")
KINDS: Mapping[str, ParameterKind] = {
    "text": ParameterKind("text", _of(STRING, "string"), ": write CAST(… AS STRING)"),
    "'text'": ParameterKind("a string literal", _literal(STRING), ": the value must be known at planning time"),
    "int": ParameterKind("an INT", _int),
    "'int'": ParameterKind("a number literal", _literal(INT), ": the result's type depends on it"),
    "bigint": ParameterKind("an integer", _of(BIGINT, "integer")),
    "integer": ParameterKind("an integer", _keep(INT, "integer")),
    "decimal": ParameterKind("a decimal", _decimal),
    "double": ParameterKind("a number", _of(DOUBLE, *_NUMBERS)),
    "float": ParameterKind("a DOUBLE or FLOAT", _keep(DOUBLE, "float")),
    "number": ParameterKind("a number", _keep(DOUBLE, *_NUMBERS)),
    "boolean": ParameterKind("a condition", _of(BOOLEAN, "boolean"), ": write a comparison"),
    "binary": ParameterKind("bytes", _of(BINARY, "binary")),
    "date": ParameterKind("a date", _of(DATE, "date", "timestamp", "local"), ": write CAST(… AS DATE)"),
    "timestamp": ParameterKind(
        "a timestamp", _of(TIMESTAMP, "date", "timestamp", "local"), ": write CAST(… AS TIMESTAMP)"
    ),
    "instant": ParameterKind("a TIMESTAMP", _of(TIMESTAMP, "timestamp", "local"), ": write CAST(… AS TIMESTAMP)"),
    "day": ParameterKind("a DATE", _of(DATE, "date"), ": write CAST(… AS DATE)"),
    "local": ParameterKind("a TIMESTAMP_NTZ", _of(LOCAL, "local")),
    "moment": ParameterKind("a date or timestamp", _keep(TIMESTAMP, "date", "timestamp", "local")),
    "any": ParameterKind("a value", _any),
    "unit": ParameterKind("a unit of time", _literal(STRING)),
    "value": ParameterKind("a value", _value),
    "any array": ParameterKind("an array", _nested("array")),
    "any map": ParameterKind("a map", _nested("map")),
    "array": ParameterKind("an array", _opened("array")),
    "array of arrays": ParameterKind("an array of arrays", _opened("array", "array")),
    "array of structs": ParameterKind("an array of structs", _opened("array", "record")),
    "map": ParameterKind("a map", _opened("map")),
    "struct": ParameterKind("a struct", _opened("record")),
    **{
        spelled: ParameterKind("a lambda (x -> …)", _function)
        for spelled in (
            "x -> value",
            "x -> condition",
            "(x y) -> value",
            "(k v) -> value",
            "(k v w) -> value",
            "(k v) -> condition",
        )
    },
}
"""The kinds of parameters. A kind in quotes accepts only literals."""


def call(
    compiler: Compiler, node: exp.Expr, name: str, parts: Sequence[exp.Expr], known: Sequence[ScalarFunction]
) -> Typed:
    """Compile a call of one of the functions in `known`, which share a name: the first that accepts the arguments.

    Raises Refusal.
    """
    fitting = [function for function in known if function.takes_count(len(parts))]
    if not fitting:
        raise Refusal(f"{name} takes {' or '.join(signature(each) for each in known)}", node)
    values = [
        Function("", NULL, None, partial(compiler.function, part))
        if isinstance(part, exp.Lambda)
        else compiler.value(part)
        for part in parts
    ]
    wrong: tuple[int, ParameterKind] = (0, KINDS["any"])
    for function in fitting:
        accepted: list[Typed] = []
        for number, (part, value) in enumerate(zip(parts, values, strict=True)):
            kind_name = function.kind(number)
            kind = KINDS[kind_name]
            argument = kind.accept(part, value) if isinstance(value, Function) == ("->" in kind_name) else None
            if argument is None:
                wrong = number, kind
                break
            accepted.append(argument)
        else:
            try:
                return function.call(accepted)
            except Refusal as refusal:
                raise Refusal(refusal.text, refusal.at or node) from None
    number, kind = wrong
    if len(fitting) == 1:
        given = values[number].type.sql
        raise Refusal(f"expected {kind.words}, got {given}{kind.advice}", parts[number])
    given = ", ".join(value.type.sql for value in values)
    raise Refusal(
        f"{name} takes {' or '.join(signature(each) for each in fitting)}, but the arguments are ({given})", node
    )


def signature(function: ScalarFunction) -> str:
    """Return a function's parameters in the form used in messages."""
    return f"({function.takes})"


def widest(arguments: Sequence[Typed]) -> Type:
    """The first argument's type."""
    return arguments[0].type.required


def maybe(type_: Type) -> Type:
    """Return the type of a result that may be NULL regardless of the arguments."""
    return with_null(type_, nullable=True)
