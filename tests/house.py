"""`python -m tests.house [ROOT]` measures the structure of the code, for comparison before and after a refactoring.

tests/unit/test_house.py has limits on these numbers.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from tests.sources import statements

ROOT = Path(__file__).parents[1]
PACKAGES = ("operators", "avro", "service")
NODE = re.compile(r"(?:physical\.)?(?:Logical|Physical)[A-Z]\w*")
NO_NODE = re.compile(r"(?:Logical|Physical)(?:Node|Input|AggregateCall|WindowCall|Define|JoinKind)")
SHORT = 60
"""A module with fewer lines and one importer may belong in that importer."""
LONG = 50
"""A function must have fewer lines."""


class House:
    """The modules of a tree, parsed once."""

    def __init__(self, root: Path = ROOT) -> None:
        files = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
        self.root = root
        self.texts = {path.relative_to(root): path.read_text() for path in files}
        self.nodes = {path: statements(root / path) for path in self.texts}

    def matches(self) -> Iterator[tuple[str, int]]:
        """Yield each `match` over plan nodes, with its location and its number of arms."""
        for path, nodes in self.nodes.items():
            for node in nodes:
                if isinstance(node, ast.Match) and any(map(_names_node, node.cases)):
                    yield f"{path}:{node.lineno}", len(node.cases)

    def lines_importing_nodes(self) -> int:
        """Return the number of lines that only import node classes."""
        found = 0
        for path, nodes in self.nodes.items():
            lines = self.texts[path].splitlines()
            for node in nodes:
                if isinstance(node, ast.ImportFrom):
                    names = [each.name for each in node.names if NODE.fullmatch(each.name)]
                    own = lines[node.lineno - 1 : node.end_lineno]
                    found += sum(any(re.search(rf"\b{name}\b", line) for name in names) for line in own)
        return found

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """For each module, the modules of the packages that it imports."""
        known = {_dotted(path) for path in self.texts}
        found: dict[str, set[str]] = defaultdict(set)
        for path, nodes in self.nodes.items():
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rowkind."):
                    base = str(node.module).removeprefix("rowkind.")
                    inner = {f"{base}.{each.name}" for each in node.names} & known
                    found[_dotted(path)] |= inner or ({base} & known)
        return found

    def small_with_one_importer(self) -> list[str]:
        """Return the modules with few lines that only one module imports."""
        importers: dict[str, set[str]] = defaultdict(set)
        for module, imported in self.imports.items():
            for each in imported - {module}:
                importers[each].add(module)
        sizes = {_dotted(path): len(text.splitlines()) for path, text in self.texts.items()}
        return sorted(each for each, by in importers.items() if len(by) == 1 and sizes.get(each, SHORT) < SHORT)

    def rooms(self, folder: str, depth: int) -> tuple[set[str], set[tuple[str, str]]]:
        """Return the modules and subfolders of a folder down to `depth`, and the imports between them."""

        def room(module: str) -> str | None:
            parts = module.split(".")
            inside = parts[: len(folder.split("."))] == folder.split(".")
            return ".".join(parts[: len(folder.split(".")) + depth]) if inside and module != folder else None

        arrows = {(room(a), room(b)) for a, imported in self.imports.items() for b in imported}
        inside = {(a, b) for a, b in arrows if a is not None and b is not None and a != b}
        rooms = {found for path in self.texts if (found := room(_dotted(path))) is not None}
        return rooms, inside

    def long_functions(self) -> list[str]:
        """Return the functions that are too long, with their line counts."""
        return [
            f"{path}:{node.lineno} {node.name} {length}"
            for path, nodes in self.nodes.items()
            for node in nodes
            if isinstance(node, ast.FunctionDef) and (length := (node.end_lineno or 0) - node.lineno + 1) >= LONG
        ]


def _names_node(case: ast.match_case) -> bool:
    classes = [ast.unparse(each.cls) for each in ast.walk(case.pattern) if isinstance(each, ast.MatchClass)]
    return any(NODE.fullmatch(name) and not NO_NODE.fullmatch(name.removeprefix("physical.")) for name in classes)


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def measured(root: Path = ROOT) -> Mapping[str, int]:
    """Return the table of measurements."""
    house = House(root)
    matches = list(house.matches())
    operators, between = house.rooms("operators", 1)
    tests = [path for path in (root / "tests").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    lines = Counter[str]()
    for path in tests:
        if path.suffix in (".py", ".txt"):
            lines[path.suffix] += len(path.read_text().splitlines())
    return {
        "lines of product": sum(len(text.splitlines()) for text in house.texts.values()),
        "lines of tests in Python": lines[".py"],
        "lines of planning cases and wording": lines[".txt"],
        "modules": len(house.texts),
        "match statements over nodes": len(matches),
        "arms of these": sum(arms for _, arms in matches),
        "lines that import node classes": house.lines_importing_nodes(),
        f"modules with one importer under {SHORT} lines": len(house.small_with_one_importer()),
        "rooms in operators/": len(operators),
        "arrows between them": len(between),
        f"functions of {LONG} lines or more": len(house.long_functions()),
    }


if __name__ == "__main__":
    for name, value in measured(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT).items():
        print(f"{value:>7}  {name}")
