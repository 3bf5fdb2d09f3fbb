"""Checksums and encodings of bytes. A text stands for its UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed
from rowkind.service.plan.scalar.types import BIGINT, BINARY, STRING, family


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


def _both(names: str, gives: Type, template: str, note: str = "") -> tuple[ScalarFunction, ...]:
    """The same for text and for bytes."""
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
    ScalarFunction("UNBASE64", "text", BINARY, "spark_unbase64({0})", "Leaves out what is no Base64."),
    *_both("HEX", STRING, "hex({0})"),
    ScalarFunction("HEX", "bigint", STRING, "upper(to_hex({0}))"),
    ScalarFunction("UNHEX", "text", maybe(BINARY), "spark_unhex({0})"),
    ScalarFunction("CONV", "text, int, int", maybe(STRING), "spark_conv({0}, {1}, {2})"),
    ScalarFunction("ENCODE", "text, 'text'", BINARY, "encode({0})", "UTF-8 only."),
    ScalarFunction("DECODE", "binary, 'text'", STRING, "decode({0})", "UTF-8 only."),
)
