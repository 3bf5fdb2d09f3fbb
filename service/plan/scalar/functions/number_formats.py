"""TO_CHAR and TO_NUMBER: convert numbers to text and back. The format consists mainly of the digits 9 and 0.

A format is checked when the query is planned. Currency symbols are refused, and so are signs, except a leading S in
TO_NUMBER, because Spark's output for them is surprising.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.functions import time_formats
from rowkind.service.plan.scalar.functions.function import ScalarFunction
from rowkind.service.plan.scalar.functions.times import plain
from rowkind.service.plan.scalar.typed import Typed, text_literal
from rowkind.service.plan.scalar.types import STRING, family

_WRITTEN = re.compile(r"[90]+(?:,[90]+)*(?:[.D][90]+)?", re.IGNORECASE)
_READ = re.compile(r"(S?)([90]+)(?:[.D]([90]+))?", re.IGNORECASE)
_FORMS = "digits (9 and 0) with commas and a decimal point, as in '9,999.00'"


def _text_of_number(arguments: Sequence[Typed]) -> str:
    value, format_ = arguments
    form = str(format_.literal)
    if family(value.type) == "float":
        raise Refusal("TO_CHAR takes a decimal: write CAST(… AS DECIMAL(p,s))")
    if not _WRITTEN.fullmatch(form):
        raise Refusal(f"the format {form!r} is not supported: write {_FORMS}")
    return f"spark_formatted(CAST({value.sql} AS VARCHAR), {text_literal(form.upper().replace('D', '.'))})"


def _text_of_bytes(arguments: Sequence[Typed]) -> str:
    value, format_ = arguments
    known = {"hex": "hex({0})", "base64": "to_base64({0})", "utf-8": "decode({0})"}
    template = known.get(str(format_.literal).lower())
    if template is None:
        raise Refusal(f"the format for bytes must be one of {', '.join(known)}")
    return template.format(value.sql)


def _text_of_moment(arguments: Sequence[Typed]) -> str:
    return time_formats.write(plain(arguments[0]), str(arguments[1].literal))


def _number_of_text(*, strict: bool) -> Callable[[Sequence[Typed]], Typed]:
    def write(arguments: Sequence[Typed]) -> Typed:
        text, format_ = arguments
        found = _READ.fullmatch(str(format_.literal))
        type_ = types.decimal(len(found[2]) + len(found[3] or ""), len(found[3] or "")) if found else None
        if found is None or type_ is None:
            raise Refusal(
                f"the format {format_.literal!r} is not supported: write digits (9 and 0), a decimal point, and S "
                "at the beginning"
            )
        form = text_literal(found[0].upper().replace("D", "."))
        number = f"spark_number({text.sql}, {form}, {'TRUE' if strict else 'FALSE'})"
        nullable = not strict or text.type.nullable
        return Typed(f"CAST({number} AS {types.duckdb(type_)})", types.with_null(type_, nullable))

    return write


FUNCTIONS = (
    ScalarFunction(
        "TO_CHAR TO_VARCHAR", "number, 'text'", STRING, _text_of_number, f"{_FORMS}; the result has no sign."
    ),
    ScalarFunction("TO_CHAR TO_VARCHAR", "binary, 'text'", STRING, _text_of_bytes, "'hex', 'base64' or 'utf-8'."),
    ScalarFunction("TO_CHAR TO_VARCHAR", "moment, 'text'", STRING, _text_of_moment, "Like DATE_FORMAT."),
    *(
        ScalarFunction(
            name,
            "text, 'text'",
            "DECIMAL as in the format",
            _number_of_text(strict=strict),
            "9, 0, a decimal point, S at the beginning.",
        )
        for name, strict in (("TO_NUMBER", True), ("TRY_TO_NUMBER", False))
    ),
)
