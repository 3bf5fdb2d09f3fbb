"""Conventions of CONTRIBUTING.md that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.sources import TOGETHER, parsed, statements

pytestmark = TOGETHER

ROOT = Path(__file__).parents[2]
PACKAGES = ("operators", "avro", "service", "generators")
GENERATED = ("requirements.lock",)
LONGEST_FILE = 400
LONGEST_FUNCTION = 49

# Written in parts, so that this file does not contain the strings that it searches for.
MACHINE_FOLDERS = ("root", "work", "home/[a-z]", "Users", "opt/wheels", "mnt")
REGISTRY_HOSTS = (
    r"pypi\.org",
    r"pythonhosted\.org",
    r"repo1?\.maven",
    r"maven\.org",
    r"proxy\.golang",
    r"deb\.debian",
    r"registry\.npmjs",
    r"docker\.io/",
    r"ghcr\.io",
    r"quay\.io/(?!debezium/)",  # the only place of Debezium's images
    r"artifact" + r"registry",
    r"artifact" + r"ory",
)
MACHINE_PATH = re.compile(r"(?<![\w.>/-])/(?:" + "|".join(MACHINE_FOLDERS) + r")/[\w.-]")
HOST = re.compile("|".join(REGISTRY_HOSTS))

PROCESSES = ("subprocess", "multiprocessing", "pty", "resource", "signal", "mkdocs")
CLOCK = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|sleep|thread_time)(_ns)?|(datetime|date|dt)\.(.*\.)?(now|utcnow|today)"
    r"|os\.(fork|forkpty|system|popen|exec\w+|spawn\w+|posix_spawnp?|times)"
)
"""Modules and names that a unit test must not use; this file alone calls git, for the tracked files."""


def test_every_test_says_in_one_sentence_what_it_shows() -> None:
    """Every test function has a docstring of one line that ends as a sentence."""
    wrong = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for function in _tests(path)
        if not re.fullmatch(r"[^\n]+[.?!]", ast.get_docstring(function) or "")
    ]
    assert not wrong, "tests without a docstring of one sentence:\n" + "\n".join(wrong)


def test_no_assertion_is_true_whatever_happens() -> None:
    """An assertion has no constant as its condition or as an alternative, which ruff overlooks beside a call."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assert)
        for each in (node.test.values if isinstance(node.test, ast.BoolOp) else [node.test])
        if isinstance(each, ast.Constant | ast.Tuple | ast.List | ast.Dict)
    ]
    assert not found, "assertions that cannot fail:\n" + "\n".join(found)


def test_no_module_is_long() -> None:
    """No module of the packages or the tests has more than 400 lines."""
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for folder in (*PACKAGES, "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    ]
    assert not long, "\n".join(long)


def test_no_function_is_long() -> None:
    """No function has more than 49 lines, including its docstring."""
    long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {lines} lines"
        for folder in (*PACKAGES, "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for function in _functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_no_module_is_named_for_nothing() -> None:
    """No module is called utils, helpers, common, misc or manager."""
    vague = re.compile(r"(utils?|helpers?|common|misc|manager)\.py")
    found = [path.relative_to(ROOT) for path in _tracked() if vague.fullmatch(path.name)]
    assert not found, found


def test_unit_tests_start_no_process_and_read_no_clock() -> None:
    """Unit tests start no processes and read no clock; such tests are in `tests/system` and `tests/docs`."""
    wrong = [
        f"{path.relative_to(ROOT)} uses {name}"
        for path in sorted((ROOT / "tests" / "unit").rglob("*.py"))
        for name in _used(path)
        if path != Path(__file__) and (name.partition(".")[0] in PROCESSES or CLOCK.fullmatch(name))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_tracked_file_names_a_machine_path_or_a_package_registry() -> None:
    """No tracked file contains a path of a particular machine or the host of a package registry."""
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {found.group()}"
        for path, number, line in _lines()
        if (found := MACHINE_PATH.search(line) or HOST.search(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_exception_from_a_check_gives_its_reason() -> None:
    """A comment that silences a linter or the type checker names the rule, and for a linter also the reason."""
    bare = re.compile(r"#\s*noqa(?!: [A-Z])|#\s*type:\s*ignore(?!\[)|#\s*noqa: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*\s*$")
    sources = (
        (path, number, line) for path, number, line in _lines() if path.suffix == ".py" and path != Path(__file__)
    )
    wrong = [f"{path.relative_to(ROOT)}:{number}" for path, number, line in sources if bare.search(line)]
    assert not wrong, "\n".join(wrong)


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in statements(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _used(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and the dotted names that it uses."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Attribute():
                yield ast.unparse(node)


def _tests(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (function for function in _functions(path) if function.name.startswith("test_"))


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def _lines() -> Iterator[tuple[Path, int, str]]:
    for path in _tracked():
        if path.name in GENERATED:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            yield path, number, line
