"""The job's schema registry."""

from __future__ import annotations

from rowkind.avro.registry import FolderRegistry, NoRegistry, Registry
from rowkind.service.job.model import Job


def open_registry(job: Job) -> Registry:
    """The registry that the job names, an empty one where it needs none; a folder is looked up beside the job file."""
    settings = job.registry
    if settings is None:
        return NoRegistry()
    if "folder" in settings:
        return FolderRegistry(job.file.parent / settings["folder"])
    from rowkind.avro.confluent_registry import ConfluentRegistry  # noqa: PLC0415 -- slow to load, and not for a folder

    return ConfluentRegistry(dict(settings))
