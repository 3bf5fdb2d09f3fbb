"""JSON as Spark reads it: what the standard library reads for us means what our own parser makes of it."""

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
    """Any JSON, with names of the schema in it."""
    match rng.randrange(4 if depth < 3 else 1):
        case 2:
            return {rng.choice("abcde"): value(rng, depth + 1) for _ in range(rng.randrange(5))}
        case 3:
            return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return rng.choice(_VALUES)


def read(texts: list[str], schema: object = _SCHEMA) -> list[object]:
    """What FROM_JSON makes of texts."""
    found = KERNELS["spark_from_json"][0](pa.array(texts), pa.array([json.dumps(schema)] * len(texts)))
    return [None if each is None else json.loads(each) for each in found.to_pylist()]


def test_half_a_letter_in_a_text_changes_nothing_else() -> None:
    """Half a surrogate pair is for our own parser; what it reads around that is what is read without."""
    rng = random.Random(5)
    members = [", ".join(f'"{name}": {json.dumps(value(rng))}' for name in "abcde") for _ in range(500)]
    plain = read([f'{{"z": "?", {each}}}' for each in members])
    halved = read([f'{{"z": "\\ud800", {each}}}' for each in members])
    assert plain == halved
    assert sum(each["d"] is not None for each in plain if isinstance(each, dict)) > 50


def test_spoilt_texts_are_read_alike() -> None:
    """A letter put in anywhere: where one parser gives up, so does the other."""
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
    """Jackson reads a thousand digits; the query goes on."""
    assert read([f'{{"a": {"9" * 5000}, "b": "x"}}']) == [dict.fromkeys(_SCHEMA)]


def test_a_text_that_is_no_decimal_number_fits_none() -> None:
    """Where Python's decimals would read one, Java's do not."""
    texts = [f'{{"d": {{"b": "{each}"}}}}' for each in ("NaN", "-Infinity", "1_0", " 1", "1,0.5", "-.5e1")]
    found = [each["d"]["b"] for each in read(texts, {"d": {"b": "DECIMAL(10,2)"}}) if isinstance(each, dict)]
    assert found == [None, None, None, None, "10.50", "-5.00"]
