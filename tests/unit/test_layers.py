"""Which package may import what: design.md's layers, read from the imports themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTSIDE = ("pyspark", "confluent_kafka", "sqlglot", "duckdb", "click", "pydantic", "ruamel", "prometheus_client")
FORBIDDEN = {
    "operators": ("avro", "service", "fastavro", *OUTSIDE),
    "avro": ("operators", "service", *OUTSIDE),
    "service": ("tests",),
}
ALLOWED = {("avro/confluent_registry.py", "confluent_kafka.schema_registry")}
"""The registry's client is Confluent's own."""


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package: str) -> None:
    """`operators` and `avro` import neither each other nor the service nor anything that touches the world."""
    wrong = [
        f"{path}:{line}: {module}"
        for path, line, module in imports(package)
        if module.partition(".")[0] in FORBIDDEN[package]
        and not any(path == allowed and module.startswith(name) for allowed, name in ALLOWED)
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_depends_on_the_package_of_the_same_name() -> None:
    """`avro` is this project's package; the distribution of that name is not among the dependencies."""
    lock = (ROOT / "requirements.lock").read_text()

    assert not any(line.startswith(("avro==", "avro-python3==")) for line in lock.splitlines())


def test_workers_load_no_parser_of_sql() -> None:
    """What Spark's workers import to run a plan imports neither sqlglot nor pydantic, which take their time."""
    reached = set(
        _reached(
            ["rowkind.service.execute.calc", "rowkind.service.spark.processor", "rowkind.service.execute.operators"]
        )
    )

    assert not reached & {"sqlglot", "pydantic", "click", "ruamel"}


def imports(package: str) -> Iterator[tuple[str, int, str]]:
    """File, line and module of every import in a package, those inside of functions too."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for line, module in _imports(path):
            yield str(path.relative_to(ROOT)), line, module


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def _reached(modules: list[str]) -> Iterator[str]:
    """The outside packages that modules import at their top, and those that they import, and so on."""
    todo, seen = list(modules), set(modules)
    while todo:
        path = ROOT / (todo.pop().replace(".", "/") + ".py")
        if not path.exists():
            path = path.with_suffix("") / "__init__.py"
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names]
            found = names if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom):
                found += [f"{node.module}.{name}" for name in names if _is_module(f"{node.module}.{name}")]
            for module in found:
                if not _is_module(module):
                    yield module.partition(".")[0]
                elif module not in seen:
                    seen.add(module)
                    todo.append(module)


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
