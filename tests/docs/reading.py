"""Draw the texts of a reading test by a seed: `python -m tests.docs.reading sentences|pages|docstrings --seed 43`.

Readers who have not seen the project say in their own words what each sentence means, and someone who knows the code
marks their answers. The same seed draws from the current text, so rounds before and after a change are comparable.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("avro", "operators", "service")
GENERATED = ("sql-examples.md", "licences.md", "plan-document.md", "sql-functions.md")
"""Pages that consist of examples or lists."""
FEWEST_WORDS = 6
_BLOCK = re.compile(r"(?s:```.*?```)|^( {4}|\||#|<).*$", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\s*(?:\n|(?=(?:[-*]|\d+\.) ))")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*(\"])")


def pages() -> list[Path]:
    """Return the pages that are written by hand."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if path.name not in GENERATED]


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without code blocks, tables and headings."""
    for paragraph in _PARAGRAPH.split(_BLOCK.sub("", text)):
        for sentence in _END.split(" ".join(paragraph.split())):
            if len(sentence.split()) >= FEWEST_WORDS:
                yield sentence


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield every docstring of the product, with its place."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}".strip(), text


def messages() -> Iterator[str]:
    """Yield every text of a raised error that is long enough to be a sentence, with `…` for values."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for each in node.exc.args:
                    text = _text(each)
                    if len(text.split()) >= FEWEST_WORDS:
                        yield text


def modules() -> Iterator[Path]:
    """Yield the modules of the product."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(str(value)):
            return value
        case ast.JoinedStr(parts):
            return "".join(_text(each) if isinstance(each, ast.Constant) else "…" for each in parts)
    return ""


def main() -> None:
    """Print the drawn texts, numbered."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.reading", description="Texts for a reading test.")
    parser.add_argument("of", choices=("sentences", "pages", "docstrings"))
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    chosen = random.Random(f"{given.of} {given.seed}")
    match given.of:
        case "sentences":
            docs = [sentence for path in pages() for sentence in sentences_of(path.read_text())]
            code = [sentence for _, text in docstrings() for sentence in sentences_of(text)]
            drawn = [*chosen.sample(docs, 20), *chosen.sample(code, 20), *chosen.sample(sorted(set(messages())), 20)]
        case "pages":
            drawn = [f"{path.relative_to(ROOT)}\n\n{path.read_text()}" for path in chosen.sample(pages(), 10)]
        case "docstrings":
            drawn = [f"{where}\n{text}" for where, text in chosen.sample([*docstrings()], 30)]
    for number, each in enumerate(drawn, 1):
        print(f"{number}. {each}\n")


if __name__ == "__main__":
    main()
