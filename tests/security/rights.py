"""The rights that the documentation says a job needs, as Kafka access control lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from rowkind.service.job.model import Job

DOCUMENT = (Path(__file__).parents[2] / "docs" / "how-to" / "secure.md").read_text()
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
Rights = Mapping[str, tuple[str, tuple[str, ...]]]


def documented(job: Job) -> Iterator[tuple[str, str, bool, tuple[str, ...]]]:
    """Yield resource, name, whether the name is a prefix, and operations."""
    table = re.search(r"\| resource \| name \|.*\n\|[-|]+\n((?:\|.*\n)+)", DOCUMENT)
    assert table is not None
    for line in table[1].splitlines():
        resource, name, operations, _ = (cell.strip() for cell in line.strip("|").split("|"))
        allowed = tuple(operations.split(", "))
        if name == "each source topic":
            yield from ((resource, each.topic, False, allowed) for each in job.tables.values())
        elif name == "each result topic":
            yield from ((resource, each.topic, False, allowed) for each in job.sinks.values())
        elif name == "the dead letter topic":
            yield resource, job.dead_letters.topic or "", False, allowed
        else:
            found = re.fullmatch(r"prefix `(.*)`", name)
            assert found is not None, name
            yield resource, found[1].replace("<job>", job.name), True, allowed


def grant(admin: AdminClient, job: Job, more: Rights | None = None) -> None:
    """Grant the user `job` the documented rights and, by resource, `more` rights on names with a prefix."""
    rights = list(documented(job))
    rights += [(resource, name, True, allowed) for resource, (name, allowed) in (more or {}).items()]
    single = {(*right, operation) for *right, operations in rights for operation in operations}
    bindings = [
        AclBinding(
            _TYPES[resource],
            name,
            ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
            "User:job",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for resource, name, prefix, operation in single
    ]
    for done in admin.create_acls(bindings).values():
        done.result()
