"""A scalar function: the names a user can write, what it takes and gives, and how it is written in DuckDB.

A function's line in a table is its documentation too, which `reference` prints. Several functions may have one name, as
long as they take different things; the first that takes what is given is meant.
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
"""The type of the result. One that is nullable is so always; else the result is NULL where an argument is. Words for it
where what writes the function decides the type as well."""

Write = str | Callable[[Sequence[Typed]], "str | Typed"]
"""DuckDB SQL with {0}, {1}, … for the arguments and {all} for all of them, or what writes it. What gives a `Typed`
decides the type as well."""


@dataclass(frozen=True)
class ScalarFunction:
    """One function.

    - `names`: with spaces between them. `takes`: the kinds of its parameters (`KINDS`), with commas between them; the
      last may be followed by `...` for one or more of the kind.
    - `keeps_null`: whether the result is NULL where an argument is; without it `gives` alone says.
    - `note`: what differs from Spark or from Flink, or is restricted.
    - `close`: whether the last digit of a DOUBLE may differ from Spark's, because two libraries computed it.
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
        """The kinds of the parameters, one each; `...` stands behind a repeated one."""
        return self.takes.split(", ") if self.takes else []

    def takes_count(self, count: int) -> bool:
        """Whether it may be called with so many arguments."""
        kinds = self.kinds
        return count >= len(kinds) if kinds and kinds[-1].endswith("...") else count == len(kinds)

    def kind(self, number: int) -> str:
        """The kind of an argument."""
        return self.kinds[min(number, len(self.kinds) - 1)].removesuffix("...")

    def call(self, arguments: Sequence[Typed]) -> Typed:
        """A call with arguments that are of their kinds."""
        texts = [argument.sql for argument in arguments]
        sql = self.sql.format(*texts, all=", ".join(texts)) if isinstance(self.sql, str) else self.sql(arguments)
        if isinstance(sql, Typed):
            return sql
        assert not isinstance(self.gives, str), "what writes it says which type it gives"
        given = self.gives if isinstance(self.gives, Type) else self.gives(arguments)
        return Typed(sql, nullable(given, *arguments) if self.keeps_null and not given.nullable else given)


@dataclass(frozen=True)
class Function(Typed):
    """A function with -> as an argument.

    `apply` gives its parameters, as many as it has, and its body for arguments of these types. Raises Refusal.
    """

    apply: Callable[[Sequence[Type]], tuple[str, Typed]] = lambda _: ("", Typed("NULL", NULL))


@dataclass(frozen=True)
class ParameterKind:
    """What a parameter accepts: what it is called, and how an argument is made one, None where it is none."""

    words: str
    accept: Callable[[exp.Expr, Typed], Typed | None]
    advice: str = ""


def _of(wanted: Type, *families: str) -> Callable[[exp.Expr, Typed], Typed | None]:
    """Values of some families, converted to a type; a text written out is read as one."""

    def accept(node: exp.Expr, value: Typed) -> Typed | None:
        found = family(value.type)
        if found == "null" or found in families:
            return converted(value, wanted)
        if value.literal is not None and found == "string" and family(wanted) in ("date", "timestamp", "local"):
            return Typed(constant(node, value.literal, wanted), wanted)
        return None

    return accept


def _keep(null: Type, *families: str) -> Callable[[exp.Expr, Typed], Typed | None]:
    """Values of some families as they are."""

    def accept(_: exp.Expr, value: Typed) -> Typed | None:
        found = family(value.type)
        return converted(value, null) if found == "null" else value if found in families else None

    return accept


def _int(_: exp.Expr, value: Typed) -> Typed | None:
    if family(value.type) == "null":
        return converted(value, INT)
    # As CAST(… AS INT), which fails where there are more than 32 bits.
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
    "'text'": ParameterKind("a text written out", _literal(STRING), ", so that it can be checked beforehand"),
    "int": ParameterKind("an INT", _int),
    "'int'": ParameterKind("a number written out", _literal(INT), ", as the type of the result depends on it"),
    "bigint": ParameterKind("a whole number", _of(BIGINT, "integer")),
    "integer": ParameterKind("a whole number", _keep(INT, "integer")),
    "decimal": ParameterKind("a decimal", _decimal),
    "double": ParameterKind("a number", _of(DOUBLE, *_NUMBERS)),
    "float": ParameterKind("a DOUBLE or FLOAT", _keep(DOUBLE, "float")),
    "number": ParameterKind("a number", _keep(DOUBLE, *_NUMBERS)),
    "boolean": ParameterKind("a condition", _of(BOOLEAN, "boolean"), ": compare it with something"),
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
        spelled: ParameterKind("a function with ->", _function)
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
"""The kinds of parameters. What stands in quotes must be written out in the query."""


def call(
    compiler: Compiler, node: exp.Expr, name: str, parts: Sequence[exp.Expr], known: Sequence[ScalarFunction]
) -> Typed:
    """A call of one of the functions of a name. Raises Refusal."""
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
        raise Refusal(f"expected {kind.words}, but this is {given}{kind.advice}", parts[number])
    given = ", ".join(value.type.sql for value in values)
    raise Refusal(f"{name} takes {' or '.join(signature(each) for each in fitting)}, but this is ({given})", node)


def signature(function: ScalarFunction) -> str:
    """What it takes, as a user reads it."""
    return f"({function.takes})"


def widest(arguments: Sequence[Typed]) -> Type:
    """The type of the first argument."""
    return arguments[0].type.required


def maybe(type_: Type) -> Type:
    """The type of a result that may be NULL whatever the arguments are."""
    return with_null(type_, nullable=True)
