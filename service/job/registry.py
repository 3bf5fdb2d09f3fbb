"""The schema registry of a job."""

from __future__ import annotations

from rowkind.avro.registry import FolderRegistry, NoRegistry, Registry
from rowkind.service.job.model import Job


def open_registry(job: Job) -> Registry:
    """Return the job's registry, or an empty registry if none is configured.

    A `folder` is relative to the folder of the job file.
    """
    settings = job.registry
    if settings is None:
        return NoRegistry()
    if "folder" in settings:
        return FolderRegistry(job.file.parent / settings["folder"])
    from rowkind.avro.confluent_registry import ConfluentRegistry  # noqa: PLC0415 -- loads slowly

    return ConfluentRegistry(dict(settings))
