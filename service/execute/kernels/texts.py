"""Text and byte kernels: full case mapping, doubles in Java's notation, checksums and encodings."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from unicodedata import category
from urllib.parse import quote_plus, unquote_to_bytes

from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = (
    (
        "spark_double_text(x) AS CASE WHEN x = 0 OR abs(x) >= 1e-3 AND abs(x) < 1e7 THEN CAST(x AS VARCHAR) "
        "ELSE spark_scientific(CAST(x AS VARCHAR)) END"
    ),
    (
        "spark_float_text(x) AS CASE WHEN x = 0 OR abs(x) >= 1e-3::REAL AND abs(x) < 1e7::REAL "
        "THEN CAST(x AS VARCHAR) ELSE spark_scientific(CAST(x AS VARCHAR)) END"
    ),
    # Java counts a character beyond 16 bits as two characters.
    r"spark_units(s) AS length(s) + length(regexp_replace(s, '[^\x{10000}-\x{10FFFF}]', '', 'g'))",
    "spark_quoted(s) AS chr(39) || replace(s, chr(39), chr(92) || chr(39)) || chr(39)",
    "spark_count(n) AS CASE WHEN n < 0 THEN 0 ELSE n END",
    "spark_slice(s, b, n) AS substring(s, spark_count(b) + 1, spark_count(b + n - spark_count(b)))",
    (
        "spark_substring(s, p, n) AS spark_slice(s, CAST(CASE WHEN p > 0 THEN p - 1 WHEN p < 0 THEN length(s) + p "
        "WHEN p = 0 THEN 0 END AS BIGINT), CAST(n AS BIGINT))"
    ),
    # A letter outside ASCII may become several letters.
    "spark_upper(s) AS CASE WHEN strlen(s) = length(s) THEN upper(s) ELSE spark_full_upper(s) END",
    "spark_lower(s) AS CASE WHEN strlen(s) = length(s) THEN lower(s) ELSE spark_full_lower(s) END",
    # The start `p` is the position of a character, counted from 1. An empty text is found at position 1.
    (
        "spark_locate(t, s, p) AS CASE WHEN t IS NULL OR s IS NULL THEN NULL WHEN p < 1 THEN 0 WHEN t = '' THEN 1 "
        "WHEN instr(substring(s, p), t) = 0 THEN 0 ELSE instr(substring(s, p), t) + p - 1 END"
    ),
    (
        "spark_pad(n, p) AS CASE WHEN p IS NULL THEN NULL WHEN n <= 0 OR p = '' THEN '' "
        "ELSE left(repeat(p, n // length(p) + 1), n) END"
    ),
)


def double_text(value: float) -> str:
    """Return a finite double in Java's notation."""
    return repr(value) if value == 0 or 1e-3 <= abs(value) < _SHORT else _scientific(repr(value))


_SHORT = 1e7


def _scientific(text: str) -> str:
    """Convert a double's text to Java's exponent notation: one digit before the point, and at least one digit after."""
    if text in ("nan", "inf", "-inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]
    if text in ("5e-324", "-5e-324"):
        # Java writes at least two digits.
        text = text.replace("5e", "4.9e")
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    plain = "".join(map(str, digits))
    power = exponent + len(plain) - 1
    fraction = plain[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{plain[0]}.{fraction}E{power}"


def _capitals(text: str) -> str:
    return " ".join(map(_capital, text.split(" ")))


def _capital(word: str) -> str:
    """Capitalize a word. The whole word is lowercased, because the form of a sigma depends on the preceding letter."""
    return word[:1].title() + word.lower()[len(word[:1].lower()) :]


def _distance(left: str, right: str) -> int:
    """Return the Levenshtein distance between two texts, in code points."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))


def _soundex(text: str) -> str:
    """Return the Soundex code of a text. As in Spark, H and W (7) do not separate equal sounds, but non-letters do."""
    if not text or not (text[0].isascii() and text[0].isalpha()):
        return text
    code, last = text[0].upper(), _SOUNDS[text[0].upper()]
    for letter in text[1:]:
        sound = _SOUNDS.get(letter.upper()) if letter.isascii() else None
        if sound is None:
            last = "0"
        elif sound != "7":
            if sound not in ("0", last):
                code += sound
                if len(code) == 4:
                    break
            last = sound
    return code.ljust(4, "0")


def _part(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise ValueError("SPLIT_PART counts from 1, or from -1 at the end")
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def _until(text: str, delimiter: str, count: int) -> str:
    """Return the text before the n-th delimiter, or for negative n, the text after the n-th delimiter from the end."""
    if not delimiter or not count:
        return ""
    at = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        at = text.find(delimiter, at + 1) if count > 0 else text.rfind(delimiter, 0, max(at - 1 + len(delimiter), 0))
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


def _place(text: str, listed: str) -> int:
    return 0 if "," in text or text not in listed.split(",") else listed.split(",").index(text) + 1


_MASKED = {"Lu": "X", "Ll": "x", "Nd": "n"}
"""The mask character for each Unicode general category.

Python's `isupper` and `islower` would also accept symbols that are not letters.
"""


def _mask(text: str) -> str:
    return "".join(_MASKED.get(category(letter), letter) for letter in text)


def _unbase64(text: str) -> bytes:
    letters = re.sub(r"[^A-Za-z0-9+/]", "", text.partition("=")[0])
    if len(letters) % 4 == 1:
        raise ValueError(f"{text!r} is not Base64")
    return base64.b64decode(letters + "=" * (-len(letters) % 4))


def _unhex(text: str) -> bytes | None:
    if not re.fullmatch(r"[0-9A-Fa-f]*", text):
        return None
    return bytes.fromhex(text.rjust(len(text) + len(text) % 2, "0"))


def _unhex_or_fail(text: str) -> bytes:
    found = _unhex(text)
    if found is None:
        raise ValueError(f"{text!r} is not hexadecimal")
    return found


def _unbase32(text: str) -> bytes:
    """Decode Base32. Invalid characters are skipped, and padding ends the text.

    If the last group is incomplete, only its complete bytes are decoded.
    """
    letters = re.sub(r"[^A-Za-z2-7]", "", text.partition("=")[0]).upper()
    whole, rest = len(letters) // 8 * 8, len(letters) % 8
    found = base64.b32decode(letters[:whole])
    if not rest:
        return found
    bits = int.from_bytes(base64.b32decode(letters[whole:].rjust(8, "A")), "big")
    if rest == 1:
        # The last character is combined with the bits of the one before it.
        bits = int.from_bytes(base64.b32decode(letters[-2:].rjust(8, "A")), "big")
        return found + bytes([bits >> 2 & 255])
    size = rest * 5 // 8
    return found + (bits >> (rest * 5 - 8 * size)).to_bytes(size, "big")


def _similar(one: str, other: str) -> float:
    """Return the Jaro-Winkler similarity of two texts as 16-bit units. At most 4 units count as the common prefix."""
    left, right = sorted((memoryview(text.encode("utf-16-le")).cast("H").tolist() for text in (one, other)), key=len)
    if not left and not right:
        return 1.0
    near = max(max(len(left), len(right)) // 2 - 1, 0)
    taken = [False] * len(right)
    mine = []
    for at, letter in enumerate(left):
        for place in range(max(0, at - near), min(len(right), at + near + 1)):
            if not taken[place] and right[place] == letter:
                taken[place] = True
                mine.append(letter)
                break
    if not mine:
        return 0.0
    theirs = [letter for letter, used in zip(right, taken, strict=True) if used]
    swapped = sum(a != b for a, b in zip(mine, theirs, strict=True)) / 2
    count = len(mine)
    jaro = (count / len(left) + count / len(right) + (count - swapped) / count) / 3
    shared = next((at for at, (a, b) in enumerate(zip(left[:4], right[:4], strict=False)) if a != b), None)
    prefix = min(4, len(left), len(right)) if shared is None else shared
    return jaro + prefix * 0.1 * (1 - jaro)


_URL = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(//([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_IN_BRACKETS = re.compile(r"//(?:[^@/?#\[]*@)?\[[0-9A-Fa-f:.]+\]")
_NO_URL = re.compile(r"[\x00-\x20<>\"{}|\\^`\x7f]|%(?![0-9A-Fa-f]{2})|#.*#|[\[\]]")
_SERVER = re.compile(
    r"((?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.?"
    r"|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\])(?::\d*)?"
)


def _of_url(url: str, part: str, strict: bool) -> str | None:
    """Return a part of a URL, which is parsed as java.net.URI would parse it.

    For an invalid URL, raise ValueError if `strict` is set, otherwise return None.
    """
    parts = _url_parts(url)
    if parts is None and strict:
        raise ValueError(f"{url!r} is not a URL: TRY_PARSE_URL returns NULL instead")
    return None if parts is None else parts.get(part)


def _url_parts(url: str) -> dict[str, str | None] | None:
    """Return the parts of a URL, keyed by their names in SQL, or None if the text is not a URL."""
    found = _URL.fullmatch(url)
    if found is None or _NO_URL.search(_IN_BRACKETS.sub("//", url, count=1)):
        return None
    scheme, slashes, authority, path, query, fragment = found.groups()
    rest = url[len(scheme) + 1 :] if scheme else url
    if (scheme and not rest) or (slashes and not authority and not path):
        return None
    if scheme and not rest.startswith("/"):
        path = query = None
    user, at, host = (authority or "").rpartition("@")
    server = _SERVER.fullmatch(host)
    return {
        "HOST": server[1] if server else None,
        "PATH": path,
        "QUERY": query,
        "REF": fragment,
        "PROTOCOL": scheme,
        "FILE": path if query is None else f"{path}?{query}",
        "AUTHORITY": authority or None,
        "USERINFO": user if at and server else None,
    }


def _of_query(url: str, part: str, key: str, strict: bool) -> str | None:
    query = _of_url(url, "QUERY", strict) if part == "QUERY" else None
    if query is None:
        return None
    found = re.search(f"(?:&|^){re.escape(key)}=([^&]*)", query)
    return found[1] if found else None


def _url_decode(text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"{text!r} is not an encoded URL")
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


_WHOLE = 1e17
"""The value at and above which a double is a whole number that has more digits than its text."""


def _grouped(number: float | Decimal, digits: int) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "-∞" if number < 0 else "∞"
    if abs(float(number)) >= _WHOLE:
        # Java pads the digits of a double's text with zeros.
        number = Decimal(str(number))
    return format(number, f",.{digits}f")


def _fixed(text: str, digits: int, grouped: bool) -> str:
    number = Decimal(text).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _ALL_DIGITS)
    return format(number, f"{',' if grouped else ''}.{digits}f")


_ALL_DIGITS = Context(prec=800)


def _luhn(text: str) -> bool:
    if not re.fullmatch(r"[0-9]+", text):
        return False
    digits = [int(digit) for digit in reversed(text)]
    return sum(digits[::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0


def _conv(text: str, source: int, target: int) -> str | None:
    """Convert a whole number, as an unsigned 64-bit number, to another base. The first invalid digit ends the number.

    Raises OverflowError if the number has more than 64 bits.
    """
    if not (2 <= source <= 36 and 2 <= abs(target) <= 36):
        return None
    text = text.strip(" ")
    if not text:
        return None
    digits, negative = "0123456789abcdefghijklmnopqrstuvwxyz", text.startswith("-")
    number = 0
    for letter in text[negative:].lower():
        if letter not in digits[:source]:
            break
        number = number * source + digits.index(letter)
    if number >= 2**64:
        raise OverflowError(f"{text} has more than 64 bits")
    if negative:
        number = -number % 2**64 if target > 0 else -number
    elif target < 0 and number >= 2**63:
        number -= 2**64
    sign, number = ("-", -number) if number < 0 else ("", number)
    found = ""
    while number:
        number, digit = divmod(number, abs(target))
        found = digits[digit] + found
    return sign + (found.upper() or "0")


KERNELS: Mapping[str, Kernel] = {
    "spark_scientific": each(_scientific, "VARCHAR", "VARCHAR"),
    "spark_full_upper": each(lambda text: text.upper(), "VARCHAR", "VARCHAR"),
    "spark_full_lower": each(lambda text: text.lower(), "VARCHAR", "VARCHAR"),
    "spark_capitals": each(_capitals, "VARCHAR", "VARCHAR"),
    "spark_distance": each(_distance, "VARCHAR", "VARCHAR", "INTEGER"),
    "spark_part": each(_part, "VARCHAR", "VARCHAR", "INTEGER", "VARCHAR"),
    "spark_until": each(_until, "VARCHAR", "VARCHAR", "INTEGER", "VARCHAR"),
    "spark_place": each(_place, "VARCHAR", "VARCHAR", "INTEGER"),
    "spark_mask": each(_mask, "VARCHAR", "VARCHAR"),
    "spark_reverse": each(lambda text: text[::-1], "VARCHAR", "VARCHAR"),
    "spark_soundex": each(_soundex, "VARCHAR", "VARCHAR"),
    "spark_conv": each(_conv, "VARCHAR", "INTEGER", "INTEGER", "VARCHAR"),
    "spark_grouped_double": each(_grouped, "DOUBLE", "INTEGER", "VARCHAR"),
    "spark_grouped_decimal": each(
        lambda text, digits: _grouped(Decimal(text), digits), "VARCHAR", "INTEGER", "VARCHAR"
    ),
    "spark_fixed": each(_fixed, "VARCHAR", "INTEGER", "BOOLEAN", "VARCHAR"),
    "spark_unhex_or_fail": each(_unhex_or_fail, "VARCHAR", "BLOB"),
    "spark_base32": each(lambda value: base64.b32encode(value).decode(), "BLOB", "VARCHAR"),
    "spark_unbase32": each(_unbase32, "VARCHAR", "BLOB"),
    "spark_bits": each(lambda value: int.from_bytes(value, "big").bit_count(), "BLOB", "BIGINT"),
    "spark_similar": each(_similar, "VARCHAR", "VARCHAR", "DOUBLE"),
    "spark_of_url": each(_of_url, "VARCHAR", "VARCHAR", "BOOLEAN", "VARCHAR"),
    "spark_of_query": each(_of_query, "VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN", "VARCHAR"),
    "spark_luhn": each(_luhn, "VARCHAR", "BOOLEAN"),
    "spark_url_encode": each(lambda text: quote_plus(text, safe="*-._").replace("~", "%7E"), "VARCHAR", "VARCHAR"),
    "spark_url_decode": each(_url_decode, "VARCHAR", "VARCHAR"),
    "spark_decoded": each(lambda value: value.decode("utf-8", "replace"), "BLOB", "VARCHAR"),
    "spark_crc32": each(zlib.crc32, "BLOB", "BIGINT"),
    "spark_unbase64": each(_unbase64, "VARCHAR", "BLOB"),
    "spark_unhex": each(_unhex, "VARCHAR", "BLOB"),
    **{
        f"spark_sha{bits}": each(
            lambda value, bits=bits: hashlib.new(f"sha{bits}", value).hexdigest(), "BLOB", "VARCHAR"
        )
        for bits in (224, 384, 512)
    },
}
