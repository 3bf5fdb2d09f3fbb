"""Size constants at which the code changes its behavior: they are known, and tests can set them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.sizes import PIECES, RELEASES, SHARES, STATE, sized
from tests.sources import TOGETHER, parsed, statements

pytestmark = TOGETHER

ROOT = Path(__file__).parents[2]
RUN_BY_ROWS = ("operators", "avro", "service/execute", "service/spark/store.py", "service/kafka/fetch.py")
"""The code that handles rows; the other code handles processes, messages and plans."""

NO_SIZES = {
    "how values, rows, state and addresses are written": """
        operators.arrangement.segment_format._ALIGN operators.arrangement.segment_format._OFFSETS_AT_LEAST
        operators.aggregate.arrivals._WIDTH operators.columns.arrival.PARTITION_BITS
        operators.columns.exact_numbers.DOUBLE_UNIT operators.columns.exact_numbers._BITS
        operators.columns.hashing.LONGEST operators.columns.hashing._STRIPE operators.columns.number_bytes._WIDTH
        operators.columns.order_code.BITS operators.columns.order_code._READ operators.temporal_join.lookup._WIDTH
        operators.columns.packed_columns._SMALL
        operators.time.temporal_filter._SPREAD avro.order.TIMESTAMP_BYTES avro.order._ABSENT_FIRST avro.order._PRESENT
        avro.order._ABSENT_LAST service.execute.aggregate_arguments._LENGTH service.execute.members.SIDES
        service.spark.store._LEVEL
    """,
    "marks, tags and answers": """
        operators.join.output.PAD operators.match.recognize._ROW operators.match.recognize._ENDS
        operators.over.over._FAILED operators.aggregate.partial.RAW operators.aggregate.partial.PARTIAL
        operators.aggregate.partial._SUMS operators.match.search.FALSE operators.match.search.TRUE
        operators.match.search.FAILED operators.time.temporal_filter._BEGINS operators.time.temporal_filter._ENDS
        operators.temporal_join.versions.ENDS avro.framing._NOT_FRAMED avro.framing._SHORT avro.framing._MISSING
    """,
    "numbers beyond all others, and limits of types": """
        operators.arrangement.segment.LAST_SEQ operators.match.calls._BIGINT operators.temporal_join.nearest.NOWHERE
        operators.rank.rank._LARGEST_MARK operators.rank.rank._ALL operators.columns.rowtime.BEGINNING
        operators.columns.rowtime.END operators.time.temporal_filter._EARLIEST operators.time.temporal_filter._LATEST
        avro.decode._DAY_MS avro.decode._MOST_MS avro.connect_values._UNKNOWN_PRECISION avro.mismatch.MOST_DIGITS
        avro.connector_values._LEAST_MILLIS avro.connector_values._MOST_MILLIS avro.text_values._MOST_SCALE
        avro.logical._MOST_DIGITS
        avro.text_values._FIRST_DAY service.execute.kernels.texts._SHORT service.execute.kernels.texts._WHOLE
        avro.time_text._DAY avro.time_text._REPEAT_DAYS avro.time_text._REPEAT_YEARS avro.timestamp_text.FIRST_DATE
        avro.timestamp_text.FIRST_MOMENT avro.timestamp_text.LAST_DATE avro.timestamp_text.LAST_MOMENT
        service.execute.delete_times._YEAR_1_US service.execute.out_of_range_times._APART_US
    """,
    "limits beyond which a batch, a schema or a record is refused": """
        operators.arrangement.netting.LARGEST avro.cursor.DEEPEST avro.schema._DEEPEST avro.schema._LONGEST
        avro.type._DEEPEST avro.type._MOST_NODES avro.walk._MOST_EMPTY_ITEMS
    """,
    "how far around a row or a value is read": "operators.over.over._SPARE avro.cursor.FRONT avro.cursor.BACK",
    "how long a message is": "avro.confluent_registry._LONGEST_WORDS avro.type._LONG",
    "answers of a registry": "avro.confluent_registry._NO_GUIDS avro.confluent_registry._INVALID",
    "times to wait, and of how many messages one is asked for its time": """
        avro.registry.ANSWER_SECONDS service.kafka.fetch._POLL_SECONDS service.kafka.fetch._STALL_SECONDS
    """,
}
"""Numbers that are not sizes, by purpose."""

SIZES = (*PIECES, *RELEASES, *STATE, *SHARES)


def test_every_number_is_a_size_or_is_said_to_be_none() -> None:
    """Every numeric constant can be set by `sized` or is in the list of other numbers."""
    numbers, none = set(_numbers()), {name for names in NO_SIZES.values() for name in names.split()}
    left = numbers - none - {name.removeprefix("rowkind.") for name in SIZES}
    assert not left, f"add these to tests/sizes.py, or say here what they are: {sorted(left)}"
    assert none <= numbers, f"these are gone: {sorted(none - numbers)}"


def test_a_size_is_read_where_it_is_needed() -> None:
    """No module copies a size constant of another one, and no default of an argument or field has its value."""
    constants = {(module, name) for module, _, name in (each.rpartition(".") for each in SIZES)}
    for file in _files(("operators", "avro", "service")):
        own = f"rowkind.{_module(file)}"
        for node in statements(file):
            held: list[ast.expr | None] = []
            match node:
                case ast.ImportFrom(module=module, names=names):
                    copied = constants & {(module, each.name) for each in names}
                    assert not copied, f"{file} copies {copied}"
                case ast.arguments():
                    held = [*node.defaults, *node.kw_defaults]
                case ast.AnnAssign():
                    held = [node.value]
            for each in held:
                name = each.id if isinstance(each, ast.Name) else ""
                assert (own, name) not in constants, f"{file}: a default holds {name}"


def test_sizes_are_set_and_set_back() -> None:
    """Within the context each size has the given value or its least one, and afterwards its own again."""
    from rowkind.operators.arrangement import compaction  # noqa: PLC0415 - the value at that time
    from rowkind.service.execute import expand  # noqa: PLC0415 - the value at that time

    before = expand._AT_ONCE, compaction.FACTOR
    with sized(1):
        assert (expand._AT_ONCE, compaction.FACTOR) == (1, 2)
    assert before == (expand._AT_ONCE, compaction.FACTOR)


def _numbers() -> Iterator[str]:
    """Yield the names of the constants of modules that are numbers."""
    for file in _files(RUN_BY_ROWS):
        for node in parsed(file).body:
            if isinstance(node, ast.Assign) and _is_number(node.value):
                names = [each for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
                yield from (f"{_module(file)}.{each.id}" for each in names if each.id.isupper())


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def _files(paths: tuple[str, ...]) -> Iterator[Path]:
    for path in paths:
        yield from [ROOT / path] if path.endswith(".py") else sorted((ROOT / path).rglob("*.py"))


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return bool(value.elts) and all(_is_number(each) for each in value.elts)
    parts = list(ast.walk(value))
    kinds = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(isinstance(each, kinds) for each in parts) and all(
        isinstance(each.value, int | float) for each in parts if isinstance(each, ast.Constant)
    )
