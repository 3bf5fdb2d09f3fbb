"""The job's schema registry."""

from __future__ import annotations

from rowkind.avro.registry import FolderRegistry, Registry
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.model import Job


def open_registry(job: Job) -> Registry:
    """The registry that the job names; a folder is looked up beside the job file. Raises JobError for none."""
    settings = job.registry
    if settings is None:
        text = (
            "registry is missing: `{url: …}` for one with Confluent's API, or `{folder: …}` for a folder of .avsc files"
        )
        raise JobError(str(job.file), [Problem(1, "", text)])
    if "folder" in settings:
        return FolderRegistry(job.file.parent / settings["folder"])
    from rowkind.avro.confluent_registry import ConfluentRegistry  # noqa: PLC0415 -- slow to load, and not for a folder

    return ConfluentRegistry(dict(settings))
