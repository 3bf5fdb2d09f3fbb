"""A Flink SQL script: its words, its statements, and notes about positions in it.

sqlglot is used only to split the script into tokens by Flink's rules: names in backticks, doubled quotation marks in
strings, and no backslash escapes. Queries are edited as text, so that they keep the user's line breaks, indentation and
comments.
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
    IDENTIFIERS = ["`"]  # noqa: RUF012 -- sqlglot reads these class attributes
    QUOTES = ["'"]  # noqa: RUF012 -- as above
    STRING_ESCAPES = ["'"]  # noqa: RUF012 -- as above
    COMMANDS = set()  # noqa: RUF012 -- as above; every statement is split into words


class FlinkWords(Dialect):
    """A sqlglot dialect that tokenizes Flink SQL. It is not used for parsing."""

    Tokenizer = _FlinkTokenizer


@dataclass(frozen=True)
class Word:
    """A word or sign of the script: its `value` without quotes, and its offsets from `start` up to `end`.

    To check for a keyword, compare `upper`. It is empty for a word in quotes.
    """

    kind: WordKind
    value: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in upper case, or an empty string if it cannot be a keyword."""
        return self.value.upper() if self.kind in ("name", "sign") else ""

    @property
    def is_name(self) -> bool:
        """Whether the word can be an identifier."""
        return self.kind in ("name", "quoted")


@dataclass(frozen=True, order=True)
class Note:
    """A difference between the job file and the script, at a position in the script.

    `lost` says whether the job lacks something that the script does. Otherwise the job does it differently, or does not
    need it.
    """

    at: int
    text: str
    lost: bool = True


class NotCarriedOver(Exception):  # noqa: N818 -- named for its meaning
    """A part of the script has no equivalent in a job file. `text` says what to do instead."""

    def __init__(self, at: int, text: str) -> None:
        self.at = at
        self.text = text
        super().__init__(text)


class ScriptError(RowkindError):
    """A script cannot be converted to a job. The message has a line for each reason, with its position."""

    exit_code = REFUSED


@dataclass(frozen=True)
class Script:
    """The text and file name of a script, with the notes about it."""

    name: str
    text: str
    notes: list[Note] = field(default_factory=list)

    def note(self, at: int, text: str, *, lost: bool = True) -> None:
        """Add a note about a position, unless the same note exists."""
        if (found := Note(at, text, lost)) not in self.notes:
            self.notes.append(found)

    def place(self, at: int) -> str:
        """Return a position as `file:line:column`."""
        line = self.text.count("\n", 0, at) + 1
        return f"{self.name}:{line}:{at - self.text.rfind(chr(10), 0, at)}"

    def line(self, at: int) -> int:
        """Return the line number of a position. The first line is 1."""
        return self.text.count("\n", 0, at) + 1

    def told(self) -> list[str]:
        """Return the notes in the order of their positions, each with its file, line and column."""
        return [f"{self.place(note.at)}: {note.text}" for note in sorted(self.notes)]

    def written(self, words: Sequence[Word]) -> str:
        """Return the script's text from the first to the last of these words."""
        return self.text[words[0].start : words[-1].end] if words else ""

    def statements(self) -> list[list[Word]]:
        """Return the words of each statement. Raises ScriptError."""
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
                # sqlglot has one token for some keywords of two words.
                for each in re.finditer(r"\S+", token.text):
                    found[-1].append(Word(kind, each[0], token.start + each.start(), token.start + each.end()))
            else:
                found[-1].append(Word(kind, token.text, token.start, token.end + 1))
        return [words for words in found if words]


class Reader:
    """A cursor over the words of a statement."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.at = 0

    @property
    def done(self) -> bool:
        """Whether all words have been taken."""
        return self.at >= len(self.words)

    @property
    def start(self) -> int:
        """The offset of the next word, or the end of the last word if all have been taken."""
        return self.words[self.at].start if not self.done else self.words[-1].end

    def peek(self, ahead: int = 0) -> str:
        """Return the `upper` of the next word, or of one further `ahead`, without taking it; empty at the end."""
        return self.words[self.at + ahead].upper if self.at + ahead < len(self.words) else ""

    def take(self) -> Word:
        """Take and return the next word. Raises NotCarriedOver."""
        if self.done:
            raise NotCarriedOver(self.start, "the statement is incomplete")
        self.at += 1
        return self.words[self.at - 1]

    def accept(self, *keywords: str) -> bool:
        """Take these keywords if all of them come next, and return whether they do."""
        if any(self.peek(ahead) != keyword for ahead, keyword in enumerate(keywords)):
            return False
        self.at += len(keywords)
        return True

    def expect(self, keyword: str) -> None:
        """Take a keyword. Raises NotCarriedOver if another word comes next."""
        if not self.accept(keyword):
            raise NotCarriedOver(self.start, f"syntax error: expected {keyword} here")

    def name(self) -> Word:
        """Take an identifier; return only the last part of `catalog.database.table`. Raises NotCarriedOver."""
        word = self.take()
        while self.accept("."):
            word = self.take()
        if not word.is_name:
            raise NotCarriedOver(word.start, "syntax error: expected a name here")
        return word

    def parenthesised(self) -> list[Word]:
        """Take and return the words inside the next pair of parentheses. Raises NotCarriedOver."""
        self.expect("(")
        start, depth = self.at, 1
        while depth:
            sign = self.take().upper
            depth += (sign == "(") - (sign == ")")
        return self.words[start : self.at - 1]

    def split_angles(self) -> None:
        """Split the next word, a `>>`, into two words `>`, because it ends two types."""
        word = self.words[self.at]
        self.words[self.at : self.at + 1] = [Word("sign", ">", at, at + 1) for at in (word.start, word.start + 1)]

    def rest(self) -> list[Word]:
        """Take and return all remaining words."""
        found = self.words[self.at :]
        self.at = len(self.words)
        return found


def parts(words: Sequence[Word], at: str = ",", *, angles: bool = False) -> list[list[Word]]:
    """Split words at each comma, or at the keyword `at`. Separators inside parentheses or brackets do not count.

    If `angles` is set, separators inside angle brackets, as in types, do not count either.
    Raises NotCarriedOver if a part is empty.
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
        raise NotCarriedOver(words[0].start, f"something is missing before or after {at}")
    return found
