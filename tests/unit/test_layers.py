"""The imports that each part may have: the layers of CONTRIBUTING.md, checked against the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.sources import TOGETHER, parsed, statements

pytestmark = TOGETHER

ROOT = Path(__file__).parents[2]
TOP = ("operators", "avro", "service")

LAYERS: Mapping[str, tuple[str, ...]] = {
    "errors": (),
    "version": (),
    "quantities": (),
    "cache": (),
    "native": (),
    "operators.errors": ("errors",),
    "operators.changelog": (),
    "operators.field_roles": (),
    "operators.columns": ("operators.changelog", "operators.errors", "native"),
    "operators.arrangement": ("operators.columns",),
    "operators.operator": ("operators.arrangement",),
    "operators.join": ("operators.operator",),
    "operators.temporal_join": ("operators.join",),
    "operators.time": ("operators.operator",),
    "operators.normalize": ("operators.join", "operators.time"),
    "operators.rank": ("operators.operator",),
    "operators.aggregate": ("operators.time",),
    "operators.over": ("operators.aggregate", "operators.rank"),
    "operators.match": ("operators.time", "operators.field_roles"),
    "operators": ("operators.temporal_join", "operators.normalize", "operators.over", "operators.match"),
    "avro": ("errors",),
    "service.machine": ("cache", "errors"),
    "service.python": ("avro", "operators", "errors"),
    "service.physical": ("service.python",),
    "service.execute": ("service.physical",),
    "service.kafka": ("service.execute", "quantities", "native"),
    "service.spark": ("service.execute", "service.machine", "quantities"),
    "service.job": ("service.physical", "service.machine"),
    "service.plan": ("service.job", "quantities"),
    "service.query": ("service.plan", "service.kafka", "service.spark", "version"),
    "service.monitoring": ("service.query",),
    "service.checkpoint": ("service.monitoring",),
    "service.web": ("service.monitoring",),
    "service.processes": ("service.query",),
    "service.testing": ("service.query",),
    "service.run": ("service.checkpoint", "service.web", "service.processes"),
    "service.multi": ("service.run",),
    "service.dev": ("service.job",),
    "service.client": ("service.plan", "service.kafka"),
    "service.why": ("service.query",),
    "service.verify": ("service.client",),
    "service.flink": ("service.plan",),
    "service.library": ("service.run", "service.client"),
    "service.cli": (
        "service.multi",
        "service.dev",
        "service.client",
        "service.flink",
        "service.testing",
        "service.verify",
        "service.why",
    ),
}
"""Each layer with the layers directly below it. A layer may import every layer below it, at any depth, and no other."""

RUNNING = (
    "service.query",
    "service.monitoring",
    "service.checkpoint",
    "service.web",
    "service.processes",
    "service.run",
    "service.multi",
)
"""The layers of a running job."""

OUTSIDE: Mapping[str, tuple[str, ...]] = {
    "pyspark": ("service.spark", "service.library", *RUNNING),
    "confluent_kafka": ("service.kafka", "service.dev", "service.client", "version", *RUNNING),
    "confluent_kafka.schema_registry": ("avro",),
    "sqlglot": ("service.plan", "service.flink"),
    "duckdb": ("service.execute", "service.dev", "service.client", "service.verify", *RUNNING),
    "pydantic": ("service.job",),
    "ruamel": ("service.job", "service.testing"),
    "rich": ("service.cli", "service.library"),
    "prompt_toolkit": ("service.cli",),
    "click": ("service.cli", "service.dev"),
    "prometheus_client": RUNNING,
    "opentelemetry": RUNNING,
}
"""Libraries that have side effects or load slowly, and the layers that may import them."""


def test_no_layer_is_above_itself() -> None:
    """No layer is below itself, directly or by other layers."""
    assert all(layer not in below(layer) for layer in LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_down(layer: str) -> None:
    """A layer imports only itself and the layers below it."""
    allowed = {layer} | below(layer)
    wrong = [
        f"{path}:{line}: {module}"
        for path, line, module in imports()
        if layer_of(_dotted(path)) == layer
        and module.startswith("rowkind.")
        and layer_of(module.removeprefix("rowkind.")) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", OUTSIDE)
def test_libraries_of_the_world_stay_in_their_layer(library: str) -> None:
    """Only the listed layers import the Kafka client, Spark, the SQL parser and the other libraries."""
    wrong = [
        f"{path}:{line}: {module}"
        for path, line, module in imports()
        if f"{module}.".startswith(f"{library}.")
        and not any(
            layer_of(_dotted(path)) in layers
            for name, layers in OUTSIDE.items()
            if f"{module}.".startswith(f"{name}.") and len(name) >= len(library)
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_in_a_circle() -> None:
    """No modules import each other in a cycle, even for types or inside functions."""
    graph: dict[str, set[str]] = {}
    for path, _, module in imports():
        graph.setdefault(_dotted(path), set()).add(module.removeprefix("rowkind."))
    # A module without imports is in no cycle; remove such modules until nothing changes.
    while True:
        rest = {name: {each for each in found if each in graph} - {name} for name, found in graph.items()}
        smaller = {name: found for name, found in rest.items() if found}
        if smaller.keys() == graph.keys():
            break
        graph = smaller
    assert not graph, f"in import cycles or above them: {sorted(graph)}"


def test_one_word_means_one_thing() -> None:
    """Every class and type alias has a name that is unique in the tree."""
    seen: dict[str, list[str]] = {}
    for path in _files():
        for node in parsed(path).body:
            for name in _types(node):
                seen.setdefault(name, []).append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in seen.items() if len(places) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(places)}" for name, places in sorted(twice.items()))


def test_all_is_imported_by_one_name() -> None:
    """No module, tests included, imports the folders by their own names, because that would load modules twice."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in [*_files(), *sorted((ROOT / "tests").rglob("*.py"))]
        for line, module in _imports(path)
        if module.partition(".")[0] in TOP
    ]
    assert not wrong, "\n".join(wrong)


def test_workers_load_no_parser_of_sql() -> None:
    """The modules that Spark's workers import do not import sqlglot and pydantic, which load slowly."""
    reached = set(
        _reached(
            ["rowkind.service.query.source", "rowkind.service.query.spark_sink", "rowkind.service.spark.processor"]
        )
    )

    assert not reached & {"sqlglot", "pydantic", "click", "ruamel"}


def test_planning_loads_no_columns() -> None:
    """The modules that `rowkind check` and `explain` import do not import Arrow and numpy, which load slowly."""
    reached = set(_reached(["rowkind.service.query.queries", "rowkind.service.plan.explain.render"]))

    assert not reached & {"pyarrow", "numpy", "duckdb", "pyspark", "confluent_kafka"}


@cache
def below(layer: str) -> set[str]:
    """Return every layer below a layer."""
    found: set[str] = set()
    todo = list(LAYERS[layer])
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += LAYERS[each]
    return found


@cache
def layer_of(module: str) -> str:
    """Return the innermost layer of a module, whose name is given without `rowkind.`."""
    parts = module.split(".")
    return next(name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in LAYERS)


@cache
def imports() -> tuple[tuple[str, int, str], ...]:
    """Return file, line and module of every import in the packages, including imports inside functions."""
    return tuple((str(path.relative_to(ROOT)), line, module) for path in _files() for line, module in _imports(path))


def _files() -> list[Path]:
    return sorted(path for top in TOP for path in (ROOT / top).rglob("*.py"))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield node.lineno, name if _is_module(name) else node.module


def _types(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
            yield target.id


def _reached(modules: list[str]) -> Iterator[str]:
    """Yield the external packages that modules import at module level, directly or through other modules."""
    todo, seen = list(modules), set(modules)
    while todo:
        for node in parsed(_path(todo.pop())).body:
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


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _path(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"


@cache
def _is_module(name: str) -> bool:
    return name.startswith("rowkind") and _path(name).exists()
