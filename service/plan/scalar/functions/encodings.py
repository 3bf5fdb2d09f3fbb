"""Functions for checksums and encodings. They operate on bytes; text is first encoded as UTF-8."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import BIGINT, BINARY, INT, STRING, duckdb, family


def _bytes(value: Typed) -> str:
    return f"encode({value.sql})" if family(value.type) == "string" else value.sql


def _of_bytes(template: str) -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        return template.format(_bytes(arguments[0]))

    return write


def _sha2(arguments: Sequence[Typed]) -> str:
    value, bits = arguments
    named = {"0": "sha256({0})", "256": "sha256({0})", "224": "spark_sha224({0})", "384": "spark_sha384({0})"}
    template = (named | {"512": "spark_sha512({0})"}).get(str(bits.literal), "CAST(NULL AS VARCHAR)")
    return template.format(_bytes(value))


def _hashed(algorithm: str, result: Type) -> Callable[[Sequence[Typed]], str]:
    """Return a function that writes SQL for a hash of all its arguments.

    The hash starts as 42, and is updated with one argument after the other.

    A NULL leaves the hash unchanged.
    """

    def write(arguments: Sequence[Typed]) -> str:
        made = f"CAST(42 AS {duckdb(result)})"
        for value in arguments:
            kernel, sql = _hashable(value)
            made = f"COALESCE(spark_{algorithm}_{kernel}({sql}, {made}), {made})" if kernel else made
        return made

    return write


def _hashable(value: Typed) -> tuple[str, str]:
    """Return the name of the kernel that hashes a value, and SQL for the value in the form that the kernel accepts."""
    micros = f"epoch_us(CAST({value.sql} AS TIMESTAMP))"
    match family(value.type):
        case "null":
            return "", ""
        case "boolean":
            return "int", f"CAST({value.sql} AS INTEGER)"
        case "date":
            return "int", f"CAST({value.sql} - DATE '1970-01-01' AS INTEGER)"
        case "timestamp" | "local":
            return "bigint", micros
        case "decimal" if value.type.precision <= _LONG_DIGITS:
            return "bigint", f"CAST({value.sql} * {10**value.type.scale} AS BIGINT)"
        case "string":
            return "text", value.sql
        case "binary":
            return "bytes", value.sql
        case "integer" | "float":
            return {"INT": "int", "BIGINT": "bigint", "FLOAT": "float", "DOUBLE": "double"}[value.type.sql], value.sql
    raise Refusal(f"values of type {value.type.sql} cannot be hashed: write CAST(… AS STRING)")


_LONG_DIGITS = 18


def _to_binary(*, tried: bool) -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        text, format_ = arguments
        kernels = {"hex": "spark_unhex_or_fail({0})", "utf-8": "encode({0})", "utf8": "encode({0})"}
        template = kernels.get(str(format_.literal).lower())
        if template is None:
            raise Refusal("the format must be 'hex' or 'utf-8': for Base64, write UNBASE64")
        found = template.format(text.sql)
        return f"TRY({found})" if tried else found

    return write


def _both(names: str, gives: Type, template: str, note: str = "") -> tuple[ScalarFunction, ...]:
    """Return two entries for a function: one that takes text, and one that takes bytes."""
    write = _of_bytes(template)
    return tuple(ScalarFunction(names, kind, gives, write, note) for kind in ("text", "binary"))


FUNCTIONS = (
    *_both("MD5", STRING, "md5({0})"),
    *_both("SHA SHA1", STRING, "sha1({0})"),
    *(
        ScalarFunction(
            "SHA2", f"{kind}, 'int'", maybe(STRING), _sha2, "NULL for bits other than 0, 224, 256, 384, 512."
        )
        for kind in ("text", "binary")
    ),
    *_both("CRC32", BIGINT, "spark_crc32({0})"),
    *_both("BASE64", STRING, "to_base64({0})"),
    *_both("TO_BASE32", STRING, "spark_base32({0})"),
    ScalarFunction("FROM_BASE32", "text", BINARY, "spark_unbase32({0})"),
    ScalarFunction("HASH", "any...", INT, _hashed("murmur", INT), "Murmur3, as in Spark.", keeps_null=False),
    ScalarFunction("XXHASH64", "any...", BIGINT, _hashed("xx", BIGINT), keeps_null=False),
    *(
        ScalarFunction(names, "text, 'text'", maybe(BINARY) if tried else BINARY, _to_binary(tried=tried))
        for names, tried in (("TO_BINARY", False), ("TRY_TO_BINARY", True))
    ),
    ScalarFunction("TO_BINARY", "text", BINARY, "spark_unhex_or_fail({0})", "Hexadecimal."),
    ScalarFunction("TRY_TO_BINARY", "text", maybe(BINARY), "TRY(spark_unhex_or_fail({0}))", "Hexadecimal."),
    ScalarFunction("UNBASE64", "text", BINARY, "spark_unbase64({0})", "Ignores characters that are not Base64."),
    *_both("HEX", STRING, "hex({0})"),
    ScalarFunction("HEX", "bigint", STRING, "upper(to_hex({0}))"),
    ScalarFunction("UNHEX", "text", maybe(BINARY), "spark_unhex({0})"),
    ScalarFunction("CONV", "text, int, int", maybe(STRING), "spark_conv({0}, {1}, {2})"),
    ScalarFunction("ENCODE", "text, 'text'", BINARY, "encode({0})", "UTF-8 only."),
    ScalarFunction("DECODE", "binary, 'text'", STRING, "decode({0})", "UTF-8 only."),
)
