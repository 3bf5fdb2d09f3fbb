"""Translate a query from Flink SQL to Spark SQL. Only the words that differ in Spark are replaced.

Differences that depend on column types are handled later (`service.flink.by_type`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rowkind.service.flink.connectors import length_of_time
from rowkind.service.flink.functions import SPELLINGS, WITHOUT, spelled
from rowkind.service.flink.script import NotCarriedOver, Reader, Script, Word, parts
from rowkind.service.flink.tables import FlinkOption, Options, hinted_options
from rowkind.service.flink.text import Sql, Stretch, filled, quoted
from rowkind.service.flink.types import spark_type

_SYNTAX: tuple[tuple[tuple[str, ...], str], ...] = (
    (("SIMILAR", "TO"), "SIMILAR TO is not supported: use RLIKE with a regular expression"),
    (("BETWEEN", "SYMMETRIC"), "SYMMETRIC is not supported: write BETWEEN LEAST(a, b) AND GREATEST(a, b)"),
    (("BETWEEN", "ASYMMETRIC"), "ASYMMETRIC is not supported: leave it out, because it is the default of BETWEEN"),
    (("IS", "JSON"), "IS JSON is not supported: GET_JSON_OBJECT(text, '$') IS NOT NULL is similar"),
    (("IS", "NOT", "JSON"), "IS JSON is not supported: GET_JSON_OBJECT(text, '$') IS NULL is similar"),
    (("OVERLAPS",), WITHOUT["OVERLAPS"]),
)  # fmt: skip
_HINT = re.compile(r"(\w+)\s*(?:\(([^)]*)\))?")
_PAIR = re.compile(r"'?([\w.]+)'?\s*=\s*'([^']*)'")
_SKIP_NULLS = ("FIRST_VALUE", "LAST_VALUE")
"""Aggregate functions that skip NULLs by default in Flink, and in Spark only with IGNORE NULLS."""
_KEEPS_NULLS = (
    "ARRAY_AGG omits NULLs, which Flink keeps; if there are no values, its result is an empty array, and NULL in Flink"
)


@dataclass(frozen=True)
class Translator:
    """A translator of queries. `tables` has the names of tables and views, `proctime` those of PROCTIME() columns."""

    script: Script
    tables: frozenset[str]
    proctime: frozenset[str]

    def query(self, words: Sequence[Word]) -> Sql:
        """Translate a whole query. Raises NotCarriedOver."""
        if not words:
            raise NotCarriedOver(0, "a query is missing")
        indent = self._indent(words[0].start)
        pieces = tuple(
            replace(piece, text=re.sub(rf"\n[ \t]{{0,{indent}}}", "\n", piece.text)) if "\n" in piece.text else piece
            for piece in self.sql(words).pieces
        )
        return Sql(pieces)

    def _indent(self, at: int) -> int:
        """Return the indentation, in characters, of the line that contains the offset `at`."""
        line = self.script.text[self.script.text.rfind("\n", 0, at) + 1 : at]
        return len(line) if not line.strip() else len(line) - len(line.lstrip())

    def sql(self, words: Sequence[Word]) -> Sql:
        """Translate consecutive words of a query, and keep the text between them. Raises NotCarriedOver."""
        found, at = Sql(), 0
        while at < len(words):
            if at:
                found += self._gap(words[at - 1].end, words[at].start)
            made, taken = self._next(words, at)
            found += made
            at += taken
        return found

    def _gap(self, start: int, end: int) -> Sql:
        text = self.script.text[start:end]
        if "/*+" in text:
            text = re.sub(r"\s*/\*\+.*?\*/", "", text, flags=re.DOTALL)
        return Sql((Stretch(text, start),))

    def _next(self, words: Sequence[Word], at: int) -> tuple[Sql, int]:
        """Translate the words that start at index `at`. Return the SQL, and how many words it replaces."""
        word, left = words[at], Reader(words[at:])
        _check_carried_over(left)
        before = words[at - 1].upper if at else ""
        if word.kind == "hint":
            return self._hint(word), 1
        if word.kind == "text":
            return self._piece(word, quoted(word.value)), 1
        if word.upper == "TIMESTAMP" and len(words) > at + 1 and words[at + 1].kind == "text":
            return self._piece(word, "TIMESTAMP_NTZ"), 1
        if word.upper == "UNKNOWN" and before in ("IS", "NOT"):
            return self._piece(word, "NULL"), 1
        if word.upper in ("ARRAY", "MAP") and left.peek(1) == "[":
            left.take()
            made = self._piece(word, word.upper) + filled("({0})", (self.sql(_bracketed(left)),), word.start)
            return self._subscripts(made, left), left.at
        if word.is_name and before != ".":
            return self._called(left) if left.peek(1) == "(" else self._name(words, at, before)
        return self._piece(word), 1

    def _called(self, reader: Reader) -> tuple[Sql, int]:
        """Translate a call: a name followed by parentheses. Take only its name if the call is the same in Spark."""
        name = reader.take()
        inside = reader.parenthesised()
        if name.upper == "ARRAY_AGG":
            self.script.note(name.start, _KEEPS_NULLS)
        if name.upper in _SKIP_NULLS:
            return self._skipping_nulls(name, inside, reader), reader.at
        call = self._call(name, inside)
        if call is None and reader.peek() == "[":
            call = self._piece(name) + filled("({0})", (self.sql(inside),), name.start)
        return (self._piece(name), 1) if call is None else (self._subscripts(call, reader), reader.at)

    def _piece(self, word: Word, text: str | None = None) -> Sql:
        return Sql((Stretch(self.script.text[word.start : word.end] if text is None else text, word.start),))

    def _subscripts(self, value: Sql, behind: Reader) -> Sql:
        """Add the subscripts that follow a value. Array positions start at 1 in Flink, and at 0 in Spark."""
        while behind.peek() == "[":
            at, inner = behind.start, _bracketed(behind)
            by_text = len(inner) == 1 and inner[0].kind == "text"
            value = filled("{0}[{1}]" if by_text else "TRY_ELEMENT_AT({0}, {1})", (value, self.sql(inner)), at)
        return value

    def _name(self, words: Sequence[Word], at: int, before: str) -> tuple[Sql, int]:
        """Translate a name with its qualifiers and subscripts: `catalog.database.table`, `o.proctime`, `tags[1]`."""
        end = at
        while end + 2 < len(words) and words[end + 1].upper == "." and words[end + 2].is_name:
            end += 2
        last = words[end]
        is_call = end + 1 < len(words) and words[end + 1].upper == "("
        if before in ("FROM", "JOIN", "TABLE") and last.value in self.tables:
            behind = Reader(words[end + 1 :])
            matched = self._matched(self._piece(last), behind) if behind.peek() == "MATCH_RECOGNIZE" else None
            return (self._piece(last), end - at + 1) if matched is None else (matched, end - at + 1 + behind.at)
        if not is_call and last.value in self.proctime and before not in ("AS", "FROM", "JOIN"):
            return self._piece(last, "PROCTIME()"), end - at + 1
        whole = Sql((Stretch(self.script.text[words[at].start : last.end], words[at].start),))
        behind = Reader(words[end + 1 :])
        whole = self._subscripts(whole, behind)
        return whole, end - at + 1 + behind.at

    def _matched(self, table: Sql, behind: Reader) -> Sql | None:
        """Translate a table with a MATCH_RECOGNIZE clause in processing time, which becomes a column of the table.

        Return None if the clause orders rows by another time.
        """
        behind.take()
        inside = behind.parenthesised()
        keywords = [word.upper for word in inside]
        for place, word in enumerate(inside):
            if keywords[max(place - 2, 0) : place] == ["ORDER", "BY"] and word.value in self.proctime:
                rows = filled("(SELECT *, PROCTIME() AS {1} FROM {0}) ", (table, self._piece(word)), table.at)
                clause = replace(self, proctime=self.proctime - {word.value}).sql(behind.words[: behind.at])
                return rows + clause
        return None

    def _call(self, name: Word, inside: Sequence[Word]) -> Sql | None:
        """Translate a function call that differs in Spark, or return None if it does not differ."""
        called, arguments = name.upper, [list(each) for each in parts(inside)]
        match called:
            case "CAST" | "TRY_CAST":
                value, *to = parts(inside, "AS")
                if not to:
                    return None
                # The alias of a subquery is inside the subquery's parentheses, so the last AS belongs to the CAST.
                type_ = spark_type(Reader(to[-1]))
                return self._piece(name) + filled("({0} AS " + type_ + ")", (self.sql(value),), name.start)
            case "CEIL" | "FLOOR" if len(ends := parts(inside, "TO")) == 2:
                called, arguments = f"{called} TO", [ends[0], ends[1]]
            case "EXTRACT" if inside and inside[0].upper == "SECOND":
                called, arguments = "EXTRACT SECOND", [list(inside[2:])]
            case "SPLIT_INDEX" if len(arguments) == 3 and arguments[2][0].kind != "number":
                called = "SPLIT_INDEX of any place"
            case "TO_TIMESTAMP_LTZ" if len(arguments) == 2:
                digits = arguments[1][0].value
                unit = {"0": "seconds", "3": "milliseconds"}.get(digits, "text")
                called = f"{called} of {unit}"
            case "SPLIT" if len(arguments) == 2:
                return self._split(name, arguments)
            case "JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS":
                return self._json(name, arguments)
        if called in WITHOUT:
            raise NotCarriedOver(name.start, f"{called} is not carried over: {WITHOUT[called]}")
        template = spelled(called, len(arguments))
        if template is None:
            return None
        return filled(template, tuple(self.sql(each) for each in arguments), name.start)

    def _skipping_nulls(self, name: Word, inside: Sequence[Word], behind: Reader) -> Sql:
        """Translate a call that skips NULLs by default. RESPECT NULLS may come inside or after its parentheses."""
        value, said = list(inside), ""
        if [each.upper for each in inside[-2:]] in (["IGNORE", "NULLS"], ["RESPECT", "NULLS"]):
            value, said = value[:-2], inside[-2].upper
        made = self._piece(name) + filled("({0})", (self.sql(value),), name.start)
        if behind.accept("FILTER"):
            made += filled(" FILTER ({0})", (self.sql(behind.parenthesised()),), name.start)
        for treatment in ("IGNORE", "RESPECT"):
            if behind.accept(treatment, "NULLS"):
                said = treatment
        return made + Sql((Stretch(f" {said or 'IGNORE'} NULLS", name.start),))

    def _split(self, name: Word, arguments: list[list[Word]]) -> Sql:
        """Translate SPLIT, whose delimiter is plain text in Flink and a regular expression in Spark."""
        (delimiter, *rest) = arguments[1]
        if rest or delimiter.kind != "text":
            raise NotCarriedOver(name.start, "the delimiter of SPLIT must be a literal")
        pattern = self._piece(delimiter, quoted(re.escape(delimiter.value)))
        return filled("SPLIT({0}, {1})", (self.sql(arguments[0]), pattern), name.start)

    def _json(self, name: Word, arguments: list[list[Word]]) -> Sql:
        """Translate a JSON path function. A missing value or invalid JSON results in NULL, which is Flink's default."""
        if len(arguments) != 2 or arguments[1][0].kind != "text":
            raise NotCarriedOver(name.start, f"the path of {name.upper} must be a literal")
        (path, *options), words = arguments[1], Reader(arguments[1][1:])
        to = None
        while not words.done:
            if words.accept("RETURNING"):
                to = spark_type(words)
            elif not (words.accept("NULL", "ON", "EMPTY") or words.accept("NULL", "ON", "ERROR")):
                text = f"{name.upper}: a missing value is NULL; use COALESCE(…, …) for another value"
                raise NotCarriedOver(options[0].start, text)
        plain = re.sub(r"^\s*(lax|strict)\s+", "", path.value)
        template = SPELLINGS[name.upper, 2]
        found = filled(template, (self.sql(arguments[0]), self._piece(path, quoted(plain))), name.start)
        return found if to is None else filled(f"TRY_CAST({{0}} AS {to})", (found,), name.start)

    def _hint(self, hint: Word) -> Sql:
        """Translate a hint: keep STATE_TTL, drop all other hints, and add a note for each of these."""
        kept = []
        for each in _HINT.finditer(hint.value.removeprefix("/*+").removesuffix("*/")):
            if each[1].upper() != "STATE_TTL":
                text = f"the hint {each[1]} is left out: hints cannot select a join strategy"
                self.script.note(hint.start, text, lost=False)
                continue
            for alias, length in _PAIR.findall(each[2] or ""):
                if (shown := length_of_time(FlinkOption(length, hint.start), "STATE_TTL")) is not None:
                    kept.append(f"'{alias}' = '{shown}'")
        return Sql((Stretch(f"/*+ STATE_TTL({', '.join(kept)}) */" if kept else "", hint.start),))


def _bracketed(reader: Reader) -> list[Word]:
    """Take and return the words inside the next pair of brackets. Raises NotCarriedOver."""
    reader.expect("[")
    start, depth = reader.at, 1
    while depth:
        sign = reader.take().upper
        depth += (sign == "[") - (sign == "]")
    return reader.words[start : reader.at - 1]


def read_tables(script: Script, words: Sequence[Word], tables: frozenset[str]) -> dict[str, Options]:
    """Return the tables and views that a query may read, each with the options in the hints after its name."""
    found: dict[str, dict[str, FlinkOption]] = {}
    for place, word in enumerate(words):
        if word.is_name and word.value in tables:
            end = words[place + 1].start if place + 1 < len(words) else len(script.text)
            found.setdefault(word.value, {}).update(hinted_options(script.text[word.end : end], word.end))
    return dict(found)


def _check_carried_over(reader: Reader) -> None:
    """Raise NotCarriedOver if the next words are syntax that a job does not support."""
    word, behind = reader.words[reader.at], reader.words[reader.at + 1 : reader.at + 2]
    for keywords, text in _SYNTAX:
        if reader.accept(*keywords):
            raise NotCarriedOver(word.start, text)
    following = reader.peek(1)
    if word.upper == "LATERAL" and following != "(":
        text = "use JOIN t FOR SYSTEM_TIME AS OF PROCTIME()" if following == "SNAPSHOT" else (
            "for an array, use UNNEST"
        )  # fmt: skip
        raise NotCarriedOver(word.start, f"a table function is not carried over: {text}")
    if word.upper == "TIME" and behind and behind[0].kind == "text":
        text = "a TIME literal is not supported: write CAST(… AS STRING) around the column, and compare strings"
        raise NotCarriedOver(word.start, text)
    if word.upper in (")", "]") and following == "[":
        raise NotCarriedOver(word.start, "an expression cannot have a subscript: use TRY_ELEMENT_AT(array, position)")
