"""Translate a table's WITH (…) options to job settings: topic, format, mode, start position, Kafka connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowkind.avro.time_text import PER_SECOND, moment_text
from rowkind.service.flink.script import NotCarriedOver, Script
from rowkind.service.flink.tables import CreateTable, FlinkOption, Options
from rowkind.service.job import duration

_UNITS = {
    "d": "d", "day": "d", "days": "d", "h": "h", "hour": "h", "hours": "h", "min": "m", "m": "m", "minute": "m",
    "minutes": "m", "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "ms": "ms", "milli": "ms",
    "millis": "ms", "millisecond": "ms", "milliseconds": "ms", "": "ms",
}  # fmt: skip
_FORMATS: Mapping[str, tuple[str, bool]] = {
    "avro-confluent": ("avro", False),
    "avro-registry": ("avro", False),
    "debezium-avro-confluent": ("avro", True),
    "debezium-json": ("json", True),
    "canal-json": ("json", True),
    "maxwell-json": ("json", True),
    "ogg-json": ("json", True),
    "json": ("json", False),
    "json-registry": ("json", False),
    "avro": ("plain_avro", False),
}
"""Flink's formats, each with its name in a job file and whether its values are change envelopes."""
_NOT_DEBEZIUM = ("canal-json", "maxwell-json", "ogg-json")
_KAFKA = ("kafka", "upsert-kafka", "confluent", "kafka-0.11", "kafka-0.10", "universal")
_CDC = ("mysql-cdc", "postgres-cdc", "oracle-cdc", "sqlserver-cdc", "mongodb-cdc", "db2-cdc", "oceanbase-cdc")
TOPICLESS = ("print", "blackhole")
"""Flink sinks without a topic. They accept all changes of any query, and a job's sinks have the same names for them."""
_NEEDLESS = re.compile(
    r"connector|topic|format|key\.format|value\.format|key\.fields|value\.fields-include|changelog\.mode|"
    r"(sink|scan)\.parallelism|sink\.(partitioner|semantic|delivery-guarantee|transactional-id-prefix|buffer-flush\..*)|"
    r"scan\.bounded\.mode|key\.fields-prefix|scan\.topic-partition-discovery\.interval|properties\.(group\.id|auto\.offset\.reset|enable\.auto\.commit|"
    r"transaction\.timeout\.ms|partition\.discovery\.interval\.ms|key\.(de)?serializer|value\.(de)?serializer)|"
    r"(\w+\.)?(debezium-)?json\.(timestamp-format\.standard|schema-include|encode\.decimal-as-plain-number|"
    r"fail-on-missing-field)|(\w+\.)?avro\.(codec|timestamp_mapping\.legacy)|scan\.startup\..*|properties\..*|"
    r"(\w+\.)?(debezium-)?avro-confluent\..*|scan\.watermark\..*"
)
_JAAS = re.compile(r"(username|password)\s*=\s*[\"']([^\"']*)[\"']")


@dataclass
class Endpoints:
    """The settings that all tables of a job share: `kafka`, `registry`, and whether invalid records are tolerated."""

    kafka: dict[str, str] = field(default_factory=dict)
    registry: dict[str, str] = field(default_factory=dict)
    tolerant: bool = False


@dataclass(frozen=True)
class TableTopic:
    """A table's topic, with its format and mode as in a job file.

    `mode` is `print` or `blackhole` for a sink without a topic. `key_format` is set only if the format of keys differs
    from that of values.
    """

    name: str
    format: str
    mode: str
    exact: bool
    key_format: str | None = None


def length_of_time(option: FlinkOption, name: str) -> str | None:
    """Return an option's duration in the job file's syntax, or None if it is zero. Raises NotCarriedOver."""
    found = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", option.value)
    if found is None or found[2].lower() not in _UNITS:
        raise NotCarriedOver(option.at, f"{name}: {option.value!r} is not {duration.ACCEPTED}")
    return duration.show(duration.parse(f"{found[1]}{_UNITS[found[2].lower()]}")) if int(found[1]) else None


def topic_of(script: Script, table: CreateTable, *, sink: bool) -> TableTopic:
    """Return the topic that a table's options describe. Adds a note for each option that a job cannot express."""
    options = table.options
    connector = options.get("connector", FlinkOption("kafka" if sink else "", table.at))
    format_ = options.get("value.format") or options.get("format") or FlinkOption("json", table.at)
    named = options.get("topic", FlinkOption(table.name, table.at))
    if ";" in named.value or "topic-pattern" in options:
        script.note(
            named.at, f"{table.name}: a table can read only one topic: declare a table for each, and use UNION ALL"
        )
    topic = re.sub(r"[^A-Za-z0-9._-]", "-", named.value.partition(";")[0])
    if sink and connector.value in TOPICLESS:
        _check_topicless(script, table, connector.value)
        return TableTopic("", "json", connector.value, exact=False)
    name, enveloped = _FORMATS.get(format_.value, ("json", False))
    if connector.value not in _KAFKA:
        return _elsewhere(script, table, connector, topic, sink=sink)
    if format_.value not in _FORMATS and format_.value != "raw":
        text = f"{table.name}: the format {format_.value} is not supported; JSON is written instead"
        if not sink:
            text = f"{table.name}: the format {format_.value} is not supported: use JSON, Avro or Debezium"
        script.note(format_.at, text)
    if format_.value in _NOT_DEBEZIUM and not sink:
        text = f"{table.name}: the format {format_.value} is not supported: let Debezium write the table's changes"
        script.note(format_.at, text)
    if format_.value == "raw":
        script.note(format_.at, f"{table.name}: raw values are not supported: write JSON objects with one field")
    mode = "debezium" if enveloped else "append"
    if connector.value == "upsert-kafka":
        mode = "upsert"
    if "changelog.mode" in options:
        mode = options["changelog.mode"].value
    key_format = None if sink else _key_format(table, name)
    _check(script, table, name, key_format, sink=sink)
    return TableTopic(topic, name, mode, enveloped and not table.primary_key, key_format)


def _key_format(table: CreateTable, format_: str) -> str | None:
    """Return the format of a source's keys, or None if it is unsupported or the same as that of the values."""
    key = table.options.get("key.format")
    if key is None or not table.primary_key:
        return None
    known = {"json": "json", "avro-confluent": "avro"}.get(key.value)
    if key.value == "raw" and len(table.primary_key) == 1:
        of = str(table.record.get(table.primary_key[0], "")).removesuffix(" NOT NULL")
        # With the JSON format, a key may also be text without quotes.
        known = "long" if of == "BIGINT" else "string" if of == "STRING" and format_ != "json" else None
    return known if known != format_ else None


def _elsewhere(script: Script, table: CreateTable, connector: FlinkOption, topic: str, *, sink: bool) -> TableTopic:
    """Return the topic that replaces a table outside Kafka. Adds a note on how to copy the rows."""
    cdc = connector.value in _CDC
    what = f"the connector {connector.value}" if connector.value else "a table without a connector"
    if sink:
        text = (
            f"{table.name}: {what} is not supported: the result goes to the topic {topic}; copy it with Kafka Connect"
        )
    elif cdc:
        text = f"{table.name}: {what} is not supported: let Debezium write the table to the topic {topic}"
    else:
        text = f"{table.name}: {what} is not supported: let Kafka Connect copy the rows to the topic {topic}"
    script.note(connector.at, text)
    mode = "debezium" if cdc else "upsert" if table.primary_key else "append"
    return TableTopic(topic, "json", mode, exact=cdc and not table.primary_key)


def _check_topicless(script: Script, table: CreateTable, connector: str) -> None:
    """Add a note for each option of a print or blackhole table that is not carried over.

    `standard-error` needs no note: a job always prints to standard error. The options of a topic have no effect.
    """
    for name, option in table.options.items():
        if name not in ("print-identifier", "standard-error") and not _NEEDLESS.fullmatch(name):
            script.note(option.at, f"{table.name}: the option {name} of {connector} is not carried over")


def _check(script: Script, table: CreateTable, format_: str, key_format: str | None, *, sink: bool) -> None:
    """Add a note for each option that has an effect in Flink but is not carried over."""
    options = table.options
    for name, option in options.items():
        known = _NEEDLESS.fullmatch(name) or "ignore-parse-errors" in name
        if not known:
            script.note(option.at, f"{table.name}: the option {name} is not carried over")
    if "scan.bounded.mode" in options:
        text = f"{table.name}: scan.bounded.mode is not supported: a topic is read continuously"
        script.note(options["scan.bounded.mode"].at, text)
    if "key.fields-prefix" in options:
        text = f"{table.name}: key.fields-prefix is not supported: key columns have the same names in key and value"
        script.note(options["key.fields-prefix"].at, text)
    include = options.get("value.fields-include")
    if include is not None and include.value.upper() == "EXCEPT_KEY":
        text = "the value also has the key's columns; readers can ignore them" if sink else (
            "the value must have all columns, including those of the key"
        )  # fmt: skip
        script.note(include.at, f"{table.name}: {text}", lost=not sink)
    key, value = options.get("key.format"), options.get("value.format")
    known = key_format is not None or (format_ == "json" and key is not None and key.value == "raw")
    if key is not None and value is not None and key.value != value.value and not known:
        text = f"{table.name}: the key has the format of the value, {value.value}, instead of {key.value}"
        script.note(key.at, text)


def shared(script: Script, table: CreateTable, into: Endpoints) -> None:
    """Add a table's options for Kafka and the registry to the shared settings."""
    for name, option in table.options.items():
        if name.startswith("properties."):
            _setting(script, name.removeprefix("properties."), option, into.kafka)
        elif (found := re.fullmatch(r"(?:\w+\.)?(?:debezium-)?avro-confluent\.(.+)", name)) is not None:
            _registry(script, found[1], option, into.registry)
        elif "ignore-parse-errors" in name and option.value.lower() == "true":
            into.tolerant = True
            text = f"{table.name}: records that cannot be decoded go to the dead letter topic, so none is lost"
            script.note(option.at, text, lost=False)


def _setting(script: Script, name: str, option: FlinkOption, kafka: dict[str, str]) -> None:
    if _NEEDLESS.fullmatch(f"properties.{name}") and re.match(
        r"group\.id|auto\.offset|enable\.auto|transaction\.timeout|partition\.discovery|key\.|value\.", name
    ):
        return
    if name == "sasl.jaas.config":
        found = dict(_JAAS.findall(option.value))
        if not found:
            script.note(
                option.at, "sasl.jaas.config is for Java only: set sasl.username and sasl.password under `kafka`"
            )
        for part, value in found.items():
            _put(script, f"sasl.{part}", FlinkOption(value, option.at), kafka, "kafka")
    elif name.startswith(("ssl.truststore", "ssl.keystore")):
        script.note(option.at, f"{name} is for Java only: set ssl.ca.location, a PEM file, under `kafka`")
    else:
        _put(script, name, option, kafka, "kafka")


def _registry(script: Script, name: str, option: FlinkOption, registry: dict[str, str]) -> None:
    known = {
        "url": "url",
        "schema-registry.url": "url",
        "basic-auth.user-info": "basic.auth.user.info",
        "bearer-auth.token": "bearer.auth.token",
    }
    if name in known:
        _put(script, known[name], option, registry, "registry")
    elif name in ("subject", "schema-registry.subject"):
        script.note(option.at, f"the subject {option.value!r} is not carried over: a job always uses <topic>-value")
    elif name not in ("basic-auth.credentials-source", "bearer-auth.credentials-source"):
        script.note(option.at, f"the registry's setting {name} is not carried over: see docs/how-to/secure.md")


def _put(script: Script, name: str, option: FlinkOption, into: dict[str, str], part: str) -> None:
    value = into.setdefault(name, option.value)
    if value != option.value:
        script.note(option.at, f"a job has only one `{part}` section: {name} is {value!r}, not {option.value!r}")
    if "password" in name or name.endswith(("user.info", "token")):
        text = f"{name} is in the job file in plain text: write ${{{_variable(name)}}} or {{file: …}} instead"
        script.note(option.at, text, lost=False)


def _variable(name: str) -> str:
    return re.sub(r"\W", "_", name).upper()


def start_of(script: Script, table: CreateTable, options: Options) -> Any:
    """Return a table's `start` setting, or None to start at the beginning. Adds a note for unsupported options."""
    mode = options.get("scan.startup.mode")
    reset = options.get("properties.auto.offset.reset")
    if mode is None or mode.value == "group-offsets":
        if mode is not None:
            text = (
                f"{table.name}: a group's offsets are not carried over: the topic is read from its beginning, or from "
                "its end if auto.offset.reset is latest"
            )
            script.note(mode.at, text, lost=False)
        return "latest" if reset is not None and reset.value == "latest" else None
    read: dict[str, Callable[[], Any]] = {
        "earliest-offset": lambda: None,
        "latest-offset": lambda: "latest",
        "timestamp": lambda: {"timestamp": _moment(options["scan.startup.timestamp-millis"])},
        "specific-offsets": lambda: {"offsets": _offsets(options["scan.startup.specific-offsets"])},
    }
    try:
        return read[mode.value]()
    except (KeyError, ValueError):
        script.note(
            mode.at, f"{table.name}: scan.startup.mode {mode.value!r} is not supported: set `start` in the table"
        )
        return None


def _moment(option: FlinkOption) -> str:
    return f"{moment_text(int(option.value), PER_SECOND['millis'])}Z"


def _offsets(option: FlinkOption) -> dict[int, int]:
    return {int(a): int(b) for a, b in re.findall(r"partition:(\d+),offset:(\d+)", option.value.replace(" ", ""))}
