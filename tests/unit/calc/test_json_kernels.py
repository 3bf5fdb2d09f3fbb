"""JSON as Spark reads it: texts that the standard library reads mean the same to Rowkind's own parser."""

from __future__ import annotations

import json
import random

import pyarrow as pa

from rowkind.service.execute.kernels.json import KERNELS

_SCHEMA = {
    "a": "INT", "b": "STRING", "c": ["array", "DOUBLE"], "d": {"a": "BOOLEAN", "b": "DECIMAL(10,2)"},
    "e": ["map", "STRING"],
}  # fmt: skip
_VALUES = (
    None, True, False, 0, -0.0, 1, -5, 2**31, 2**70, 1.5, 1e300, 123456789.125, float("nan"), -float("inf"),
    "", "x", "é", "NaN", "12", "1,000.5", "INF", "\\", '"', "'", "a\nb",
)  # fmt: skip


def value(rng: random.Random, depth: int = 0) -> object:
    """Return a random JSON value that uses names of the schema."""
    match rng.randrange(4 if depth < 3 else 1):
        case 2:
            return {rng.choice("abcde"): value(rng, depth + 1) for _ in range(rng.randrange(5))}
        case 3:
            return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return rng.choice(_VALUES)


def read(texts: list[str], schema: object = _SCHEMA) -> list[object]:
    """Return the results of FROM_JSON for the texts."""
    found = KERNELS["spark_from_json"][0](pa.array(texts), pa.array([json.dumps(schema)] * len(texts)))
    return [None if each is None else json.loads(each) for each in found.to_pylist()]


def test_half_a_letter_in_a_text_changes_nothing_else() -> None:
    """Half a surrogate pair, which only Rowkind's own parser reads, does not change how the rest is read."""
    rng = random.Random(5)
    members = [", ".join(f'"{name}": {json.dumps(value(rng))}' for name in "abcde") for _ in range(500)]
    plain = read([f'{{"z": "?", {each}}}' for each in members])
    halved = read([f'{{"z": "\\ud800", {each}}}' for each in members])
    assert plain == halved
    assert sum(each["d"] is not None for each in plain if isinstance(each, dict)) > 50


def test_spoilt_texts_are_read_alike() -> None:
    """For texts with a random character inserted, both parsers accept and reject the same ones."""
    rng = random.Random(6)
    spoilt = []
    for _ in range(1000):
        text = json.dumps([value(rng), value(rng)])[1:]
        at = rng.randrange(len(text))
        spoilt.append(
            text[:at] + rng.choice(["'", '"', ",", "}", "]", "-", ".5", "e5", "\\", "\t", "NaN", "x"]) + text[at:]
        )
    pairs = [(f'["?", {each}', f'["\\ud800", {each}') for each in spoilt]
    schema = ["array", "STRING"]
    assert read([one for one, _ in pairs], schema) == read([other for _, other in pairs], schema)


def test_a_number_of_thousands_of_digits_is_no_json() -> None:
    """A number of 5,000 digits is not JSON, as in Jackson, whose limit is 1,000; it gives NULL and no error."""
    assert read([f'{{"a": {"9" * 5000}, "b": "x"}}']) == [dict.fromkeys(_SCHEMA)]


def test_a_text_that_is_no_decimal_number_fits_none() -> None:
    """A text that Java does not read as a decimal gives NULL, even if Python would read it."""
    texts = [f'{{"d": {{"b": "{each}"}}}}' for each in ("NaN", "-Infinity", "1_0", " 1", "1,0.5", "-.5e1")]
    found = [each["d"]["b"] for each in read(texts, {"d": {"b": "DECIMAL(10,2)"}}) if isinstance(each, dict)]
    assert found == [None, None, None, None, "10.50", "-5.00"]
