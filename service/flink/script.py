"""A script in Flink's SQL: its words, its statements, and what is to be said about places in it.

Only the words are sqlglot's, in Flink's spelling: backticks around names, quotation marks doubled inside of text and no
backslashes. What is a job already, queries, stays text whose words are replaced one by one, so that people find their
own lines, indents and comments again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer

from rowkind.errors import REFUSED, RowkindError

WordKind = Literal["name", "quoted", "text", "number", "hint", "sign"]

_KINDS: dict[TokenType, WordKind] = {
    TokenType.IDENTIFIER: "quoted",
    TokenType.STRING: "text",
    TokenType.NUMBER: "number",
    TokenType.HINT: "hint",
}


class _FlinkTokenizer(Tokenizer):
    IDENTIFIERS = ["`"]  # noqa: RUF012 -- sqlglot reads it so
    QUOTES = ["'"]  # noqa: RUF012 -- as above
    STRING_ESCAPES = ["'"]  # noqa: RUF012 -- as above
    COMMANDS = set()  # noqa: RUF012 -- as above: words of each statement, none of which is one text


class FlinkWords(Dialect):
    """Flink's words; nothing is parsed by it."""

    Tokenizer = _FlinkTokenizer


@dataclass(frozen=True)
class Word:
    """A word of the script, or a sign: what it says without its quotes, and where, first character to behind the last.

    `upper` is what a keyword is compared with, empty for a word in quotes.
    """

    kind: WordKind
    value: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in capitals, empty where it cannot be a keyword."""
        return self.value.upper() if self.kind in ("name", "sign") else ""

    @property
    def is_name(self) -> bool:
        """Whether it can be the name of something."""
        return self.kind in ("name", "quoted")


@dataclass(frozen=True, order=True)
class Note:
    """Something that the job file does not say as the script does, at a place in it.

    `lost` says that something is missing in the job; otherwise it only is done in another way, or need not be said.
    """

    at: int
    text: str
    lost: bool = True


class NotCarriedOver(Exception):  # noqa: N818 -- what it is
    """A piece of the script for which there is nothing in a job file, and what to do instead."""

    def __init__(self, at: int, text: str) -> None:
        self.at = at
        self.text = text
        super().__init__(text)


class ScriptError(RowkindError):
    """A script that is no job at all. The message has a line for each reason, with its place."""

    exit_code = REFUSED


@dataclass(frozen=True)
class Script:
    """A text and the name of the file that it came from, with what was noted about it."""

    name: str
    text: str
    notes: list[Note] = field(default_factory=list)

    def note(self, at: int, text: str, *, lost: bool = True) -> None:
        """Say something about a place, once."""
        if (found := Note(at, text, lost)) not in self.notes:
            self.notes.append(found)

    def place(self, at: int) -> str:
        """File, line and column of a place."""
        line = self.text.count("\n", 0, at) + 1
        return f"{self.name}:{line}:{at - self.text.rfind(chr(10), 0, at)}"

    def line(self, at: int) -> int:
        """The line of a place, from 1."""
        return self.text.count("\n", 0, at) + 1

    def told(self) -> list[str]:
        """The notes in their order, each with its place."""
        return [f"{self.place(note.at)}: {note.text}" for note in sorted(self.notes)]

    def written(self, words: Sequence[Word]) -> str:
        """Some words as they stand in the script."""
        return self.text[words[0].start : words[-1].end] if words else ""

    def statements(self) -> list[list[Word]]:
        """The words of each statement. Raises ScriptError."""
        try:
            tokens = FlinkWords().tokenize(self.text)
        except TokenError:
            raise ScriptError(f"{self.name}: a quotation mark or a comment is not closed") from None
        found: list[list[Word]] = [[]]
        for token in tokens:
            if token.token_type is TokenType.SEMICOLON:
                found.append([])
                continue
            kind = _KINDS.get(token.token_type)
            if kind is None:
                kind = "name" if token.text[:1].isalpha() or token.text[:1] == "_" else "sign"
            if kind == "name":
                # Some keywords of two words are one to sqlglot.
                for each in re.finditer(r"\S+", token.text):
                    found[-1].append(Word(kind, each[0], token.start + each.start(), token.start + each.end()))
            else:
                found[-1].append(Word(kind, token.text, token.start, token.end + 1))
        return [words for words in found if words]


class Reader:
    """Takes the words of a statement one after the other."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.at = 0

    @property
    def done(self) -> bool:
        """Whether all words are taken."""
        return self.at >= len(self.words)

    @property
    def start(self) -> int:
        """Where the next word stands, or the last one ends."""
        return self.words[self.at].start if not self.done else self.words[-1].end

    def peek(self, ahead: int = 0) -> str:
        """The next word as a keyword."""
        return self.words[self.at + ahead].upper if self.at + ahead < len(self.words) else ""

    def take(self) -> Word:
        """The next word. Raises NotCarriedOver."""
        if self.done:
            raise NotCarriedOver(self.start, "the statement ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def accept(self, *keywords: str) -> bool:
        """Take these keywords if they come next, all of them or none."""
        if any(self.peek(ahead) != keyword for ahead, keyword in enumerate(keywords)):
            return False
        self.at += len(keywords)
        return True

    def expect(self, keyword: str) -> None:
        """Take a keyword. Raises NotCarriedOver."""
        if not self.accept(keyword):
            raise NotCarriedOver(self.start, f"the statement is not understood: {keyword} was expected here")

    def name(self) -> Word:
        """The name of something; of `catalog.database.table` the last part. Raises NotCarriedOver."""
        word = self.take()
        while self.accept("."):
            word = self.take()
        if not word.is_name:
            raise NotCarriedOver(word.start, "the statement is not understood: a name was expected here")
        return word

    def parenthesised(self) -> list[Word]:
        """The words between the parenthesis that comes next and the one that closes it. Raises NotCarriedOver."""
        self.expect("(")
        start, depth = self.at, 1
        while depth:
            sign = self.take().upper
            depth += (sign == "(") - (sign == ")")
        return self.words[start : self.at - 1]

    def split_angles(self) -> None:
        """Take the `>>` that comes next for the two ends of types that it is."""
        word = self.words[self.at]
        self.words[self.at : self.at + 1] = [Word("sign", ">", at, at + 1) for at in (word.start, word.start + 1)]

    def rest(self) -> list[Word]:
        """All words that are left."""
        found = self.words[self.at :]
        self.at = len(self.words)
        return found


def parts(words: Sequence[Word], at: str = ",", *, angles: bool = False) -> list[list[Word]]:
    """The words between commas, or another keyword, those inside of parentheses aside, and of types' angles.

    Raises NotCarriedOver where there are none between two of them.
    """
    found: list[list[Word]] = [[]]
    depth = 0
    for word in words:
        depth += word.upper in ("(", "[") or (angles and word.upper == "<")
        depth -= word.upper in (")", "]") or (angles and word.upper.count(">") * (word.upper in (">", ">>")))
        if depth == 0 and word.upper == at:
            found.append([])
        else:
            found[-1].append(word)
    if not words:
        return []
    if not all(found):
        raise NotCarriedOver(words[0].start, f"something is missing before or behind {at} here")
    return found
