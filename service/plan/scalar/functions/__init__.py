"""All scalar functions that users can call, by name."""

from __future__ import annotations

from collections.abc import Mapping

from rowkind.service.plan.scalar.functions import (
    arrays,
    conditions,
    encodings,
    json,
    lambdas,
    maps,
    nested,
    number_formats,
    numbers,
    text,
    times,
    types_as_functions,
)
from rowkind.service.plan.scalar.functions.function import ScalarFunction
from rowkind.service.plan.scalar.functions.patterns import FUNCTIONS as PATTERNS
from rowkind.service.plan.scalar.functions.refused import REFUSED

__all__ = ["FAMILIES", "FUNCTIONS", "REFUSED", "ScalarFunction"]

FAMILIES: Mapping[str, tuple[ScalarFunction, ...]] = {
    "Conditions": conditions.FUNCTIONS,
    "Numbers": numbers.FUNCTIONS,
    "Text": text.FUNCTIONS,
    "Patterns": PATTERNS,
    "Dates and times": times.FUNCTIONS,
    "Checksums and encodings": encodings.FUNCTIONS,
    "Formats": number_formats.FUNCTIONS,
    "Casts": types_as_functions.FUNCTIONS,
    "Elements of arrays and maps": nested.FUNCTIONS,
    "Arrays": arrays.FUNCTIONS,
    "JSON": json.FUNCTIONS,
    "Structs and maps": maps.FUNCTIONS,
    "Functions of functions": lambdas.FUNCTIONS,
}


def _by_name() -> dict[str, tuple[ScalarFunction, ...]]:
    found: dict[str, tuple[ScalarFunction, ...]] = {}
    for functions in FAMILIES.values():
        for function in functions:
            for name in function.names.split():
                found[name] = (*found.get(name, ()), function)
    return found


FUNCTIONS: Mapping[str, tuple[ScalarFunction, ...]] = _by_name()
"""The functions of each name, in the order in which they are tried."""
