"""Random bytes for every decoder: values, frames, envelopes, keys, headers, schemas, lines of JSON.

A batch has some hundred inputs, valid ones with a few bytes changed, and runs through the code with which a job reads.
Each input must become a row or be refused with a reason. Rows must be readable, and no batch may take longer than 20 s.
"""

from __future__ import annotations

import json
import random
import signal
import struct
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.buffers import validity
from rowkind.avro.errors import AvroError
from rowkind.avro.json_rows import decode
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.formats import format_of
from rowkind.service.kafka.headers import HeaderList, Headers
from rowkind.service.kafka.record import Records
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.query.trial import InputError, read
from tests.kafka.tables import packed, pass_on
from tests.unit.kafka.test_formats import COLUMNS, ENVELOPE, ROW, avro

INPUTS = 500
"""The number of inputs in a batch."""

_GOOD = 1_000

_SECONDS = 20
_RECORD = Record.of(
    {
        "id": "BIGINT NOT NULL",
        "name": "STRING",
        "amount": "DECIMAL(10,2)",
        "ratio": "DOUBLE",
        "good": "BOOLEAN",
        "day": "DATE",
        "at": "TIMESTAMP",
        "bytes": "BINARY",
        "tags": "ARRAY<STRING>",
        "more": "MAP<STRING, BIGINT>",
        "inner": "STRUCT<a: INT, b: ARRAY<DECIMAL(30,3)>>",
    }
)
_PLAIN = ROW["fields"]
_BYTES = (
    b"\0",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 9,
    b"\x80" * 10,
    b"{",
    b'"',
    b"null",
    b"1e999",
    b"\\u",
)


class FuzzError(AssertionError):
    """An input that is neither a row nor refused."""


def changed(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """Return `data` with some bytes changed or with bytes of `other`; sometimes unchanged."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        at = rng.randint(0, len(data))
        to = min(len(data), at + rng.choice((1, 1, 2, 5, 40)))
        match rng.randrange(6):
            case 0:
                data = data[:at] + rng.randbytes(rng.choice((1, 1, 2, 9))) + data[to:]
            case 1:
                data = data[:at] + rng.choice(_BYTES) + data[rng.choice((at, to)) :]
            case 2:
                data = data[:at] + data[to:]
            case 3:
                data = data[:at]
            case 4:
                data = data[:to] + data[at:]
            case _:
                data = data[:at] + other[rng.randint(0, len(other)) :]
    return data


def value(rng: random.Random) -> dict[str, Any]:
    """Return a row of Python values."""
    small = rng.choice((None, 0, 1, -1, 2**31, -(2**63)))
    return {
        "id": rng.choice((0, 1, -1, 2**40, 2**63 - 1)),
        "name": rng.choice((None, "", "a", "é" * rng.randint(1, 60))),
        "amount": rng.choice((None, Decimal("0.00"), Decimal("-99999999.99"))),
        "ratio": rng.choice((None, 0.0, -0.0, 1e300, float("nan"))),
        "good": rng.choice((None, True, False)),
        "day": rng.choice((None, 0, -719162, 2932896)),
        "at": rng.choice((None, 0, -1, 10**15)),
        "bytes": rng.choice((None, b"", b"\0\xff")),
        "tags": rng.choice((None, [], ["a", None, ""])),
        "more": rng.choice((None, [], [("a", small and small % 7), ("", None)])),
        "inner": rng.choice((None, {"a": None, "b": None}, {"a": 5, "b": [Decimal("1.500"), None]})),
    }


class Formats:
    """Tables of each format, and inputs for them."""

    def __init__(self, folder: Path) -> None:
        self.registry = FolderRegistry(folder)
        self.number = self.registry.register("rows-value", _RECORD)
        self.envelope = self.registry.register("envelopes-value", Record.parse(ENVELOPE))
        self.frame = struct.pack(">bI", 0, self.number)
        # Valid inputs are generated once, because generating takes longer than reading.
        rng = random.Random(1)
        self._good = packed(_RECORD, [value(rng) for _ in range(_GOOD)])
        self._texts = [
            json.dumps(row, ensure_ascii=rng.random() < 0.5).encode()
            for row in decode(_RECORD, pa.array(self._good, pa.binary()))
        ]
        self._envelopes = [avro(ENVELOPE, _envelope(rng)) for _ in range(_GOOD)]

    def surfaces(self) -> dict[str, Callable[[random.Random], Counter[str]]]:
        """Return the decoders under test, by name."""
        plain, append = self._table("upsert", "plain_avro", written=_RECORD), self._table("append", "json")
        avro_table, upsert, json_upsert = (
            self._table("retract", "avro"),
            self._table("upsert", "avro"),
            self._table("upsert", "json"),
        )
        latest, exact = _debezium("upsert", "avro"), _debezium("retract", "avro", primary_key=(), exact=True)
        in_json = _debezium("upsert", "json")
        return {
            "Avro values": lambda rng: self._look(rng, avro_table, self._avro),
            "Avro values without a frame": lambda rng: self._look(rng, plain, self._bare),
            "keys in Avro": lambda rng: self._look(rng, upsert, _nothing, self._avro_key),
            "Debezium's envelopes in Avro": lambda rng: self._look(rng, latest, self._enveloped),
            "the same, of an exact table": lambda rng: self._look(rng, exact, self._enveloped),
            "JSON values": lambda rng: self._look(rng, append, self._json),
            "keys in JSON": lambda rng: self._look(rng, json_upsert, _nothing, self._json),
            "Debezium's envelopes in JSON": lambda rng: self._look(rng, in_json, _json_envelope),
            "headers": lambda rng: self._look(rng, avro_table, self._framed, headers=_headers),
            "schemas": self._schemas,
            "lines of changes": _lines,
        }

    @staticmethod
    def _table(mode: Any, form: Any, **more: Any) -> SourceTable:
        return SourceTable("rows", "rows", mode, _RECORD, ("id",), format=form, **more)

    def _bare(self, rng: random.Random) -> bytes:
        return changed(rng, rng.choice(self._good), rng.choice(self._good))

    def _avro(self, rng: random.Random) -> bytes:
        return changed(rng, self._framed(rng)) if rng.random() < 0.3 else self.frame + self._bare(rng)

    def _framed(self, rng: random.Random) -> bytes:
        return self.frame + rng.choice(self._good)

    def _avro_key(self, rng: random.Random) -> bytes | None:
        return None if rng.random() < 0.02 else changed(rng, self._framed(rng))

    def _enveloped(self, rng: random.Random) -> bytes:
        frame = struct.pack(">bI", 0, self.envelope)
        return frame + changed(rng, rng.choice(self._envelopes), rng.choice(self._envelopes))

    def _json(self, rng: random.Random) -> bytes:
        return changed(rng, rng.choice(self._texts), rng.choice(self._texts))

    def _look(
        self,
        rng: random.Random,
        table: SourceTable,
        make: Callable[[random.Random], bytes | None],
        key: Callable[[random.Random], bytes | None] = lambda _: None,
        headers: Callable[[random.Random], HeaderList] = lambda _: [("op", b"+I")],
    ) -> Counter[str]:
        values = [make(rng) for _ in range(INPUTS)]
        keys, told = [key(rng) for _ in values], [headers(rng) for _ in values]
        try:
            return self._read(table, values, keys, told)
        except Exception as error:  # every error is a finding; it is raised again with its input
            for number, each in enumerate(zip(values, keys, told, strict=True)):
                try:
                    self._read(table, *([part] for part in each))
                except Exception as alone:  # as above
                    raise FuzzError(
                        f"input {number}: value {each[0]!r}, key {each[1]!r}, headers {each[2]!r}"
                    ) from alone
            raise FuzzError(f"all of them together, none alone: {values!r}") from error

    def _read(
        self,
        table: SourceTable,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        headers: Sequence[HeaderList],
    ) -> Counter[str]:
        count = len(values)
        decoder = Decoder(PhysicalScan("scan", table, pass_on(table.declared)), self.registry, tolerate=True)
        found = decoder.decode(
            Records(
                "rows",
                np.zeros(count, np.int64),
                np.arange(count),
                pa.array(values, pa.binary()),
                pa.array(keys, pa.binary()),
                Headers.of(headers),
                np.zeros(count, np.int64),
            )
        )
        read_again = codec.read(table.declared, found.rows.payload)
        for name in table.declared.names:
            read_again.column(name)
        if read_again.bad.any():
            raise FuzzError(f"a row that cannot be read: {read_again.reason(int(np.argmax(read_again.bad)))}")
        of, bad = set((found.rows.seq >> 16).tolist()), {letter.offset for letter in found.letters}
        if table.debezium:
            # A tombstone follows a delete and is no row; in JSON it may be written as null.
            nothing = format_of(table, self.registry).without_nothing(pa.array(values, pa.binary()))
            of |= set(np.flatnonzero(~validity(nothing)).tolist())
        if of & bad or len(of | bad) < count:
            raise FuzzError("an input is a row and refused, or neither")
        if any(not letter.message for letter in found.letters):
            raise FuzzError("an input is refused for no reason")
        return Counter({"rows": len(of), "refused": len(bad)})

    def _schemas(self, rng: random.Random) -> Counter[str]:
        outcomes: Counter[str] = Counter()
        for _ in range(INPUTS // 4):
            text = changed(rng, json.dumps(rng.choice((ENVELOPE, ROW, _RECORD.avro))).encode())
            try:
                record = Record.parse(text)
                Record.parse(record.to_json())
            except AvroError:
                outcomes["refused"] += 1
                continue
            decoded = codec.read(record, pa.array([self._bare(rng)], pa.binary()))
            for name in record.names:
                decoded.column(name)
            outcomes["rows"] += 1
        return outcomes


def _debezium(mode: Any, form: Any, **more: Any) -> SourceTable:
    key = more.pop("primary_key", ("id",))
    return SourceTable("rows", "rows", mode, Record.of(COLUMNS), key, format=form, debezium=True, **more)


def _nothing(_: random.Random) -> None:
    return None


def _json_envelope(rng: random.Random) -> bytes:
    row = {"id": 1, "name": "a", "amount": "1.50", "day": "2026-01-05"}
    before, after = (None if rng.random() < 0.4 else row for _ in range(2))
    whole: dict[str, Any] = {"before": before, "after": after, "op": rng.choice("crudtx")}
    return changed(rng, json.dumps(rng.choice((whole, {"schema": {}, "payload": whole}))).encode())


def _envelope(rng: random.Random) -> dict[str, Any]:
    before, after = (None if rng.random() < 0.4 else _row(rng) for _ in range(2))
    return {"before": before, "after": after, "source": {"lsn": 1}, "op": rng.choice("ccruuddtx"), "ts_ms": None}


def _row(rng: random.Random) -> dict[str, Any]:
    name, placed = rng.choice((None, "a")), rng.choice((None, 0))
    return {"id": rng.choice((0, 1, -5)), "name": name, "amount": None, "placed": placed, "day": None}


def _headers(rng: random.Random) -> HeaderList:
    names = ("op", "op", "__value_schema_id", "__key_schema_id", "", "é", "OP")
    words = (b"+I", b"-U", b"+U", b"-D", b"", None, b"+X", b"\xff", b"\x00\x00\x00\x00\x01", b"\x01" * 17)
    many = rng.choice((0, 1, 1, 2, 5))
    made: HeaderList = [(rng.choice(names), rng.choice((*words, rng.randbytes(3)))) for _ in range(many)]
    return made if made or rng.random() < 0.5 else None


_JOB = """
job: lines
tables:
  rows: {mode: retract, primary_key: id, columns: {id: BIGINT, name: STRING, amount: "DECIMAL(10,2)", at: TIMESTAMP}}
sinks: {all: {mode: retract, sql: SELECT * FROM rows}}
"""


@cache
def _job() -> Job:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.yaml").write_text(_JOB)
        return load(Path(folder, "job.yaml"), {})


def _lines(rng: random.Random) -> Counter[str]:
    """Read lines of changes as `rowkind try` and `rowkind produce` do."""
    outcomes: Counter[str] = Counter()
    for _ in range(INPUTS // 4):
        change = {
            "table": "rows",
            "op": "+I",
            "row": {"id": 1, "name": "a", "amount": "1.5", "at": "2026-01-05T12:00:00Z"},
        }
        line = changed(rng, json.dumps(change).encode()).decode(errors=rng.choice(("replace", "surrogateescape")))
        try:
            read(_job(), [line], "lines", 1)
        except InputError as error:
            if len(str(error).splitlines()) > 2:
                raise FuzzError(f"a message of many lines for {line!r}: {error}") from None
            outcomes["refused"] += 1
        except Exception as error:  # as above
            raise FuzzError(f"line {line!r}") from error
        else:
            outcomes["rows"] += 1
    return outcomes


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise FuzzError(f"it takes more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def batch(formats: Formats, surface: str, seed: int) -> Counter[str]:
    """Return the outcomes of a seed's inputs. Raises FuzzError."""
    with _in_time():
        return formats.surfaces()[surface](random.Random(f"{surface} {seed}"))


def look(seeds: Iterable[int]) -> dict[str, Counter[str]]:
    """Return the outcomes of a batch of each kind per seed; findings are printed and counted as crashes or hangs."""
    outcomes: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        formats = Formats(Path(folder))
        for seed in seeds:
            for surface in formats.surfaces():
                counts = outcomes.setdefault(surface, Counter())
                try:
                    counts.update(batch(formats, surface, seed))
                except FuzzError as error:
                    counts["hangs" if "takes more" in str(error) else "crashes"] += 1
                    cause = traceback.format_exception(error.__cause__) if error.__cause__ else [""]
                    print(f"\n==== {surface}, seed {seed}: {error}\n{''.join(cause[-3:])}")
    return outcomes
