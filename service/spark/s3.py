"""Checkpoints on S3 or a compatible store: the additional jars that pyspark needs, and the settings.

Hadoop's own package requires a 600 MB jar with all of Amazon's services. The parts that Hadoop uses take 13 MB in
total, without the libraries of which Spark includes other versions. S3 has no rename operation. A log file appears when
its upload completes, and Spark's checkpoint manager for such stores relies on that.

Credentials come from the places that Amazon's tools use: the environment, `~/.aws`, a web identity, the machine.
AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL sets the address of another server. If SPARK_CONF_DIR or HADOOP_CONF_DIR is set,
that configuration must contain all of these settings instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rowkind.service.machine.jars import Module, fetched

HADOOP, _SDK = "3.5.0", "2.35.4"
"""The Hadoop version of pyspark, and the version of Amazon's libraries that this Hadoop uses."""

_MODULES: tuple[Module, ...] = tuple(
    ("software.amazon.awssdk", name, _SDK) for name in ("s3", "s3-transfer-manager", "sts")
)
_ALONE: tuple[Module, ...] = (
    ("org.apache.hadoop", "hadoop-aws", HADOOP),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    # The newest version available. Spark 4.3 expects the same checkpoint classes.
    ("org.apache.spark", "spark-hadoop-cloud_2.13", "4.1.1"),
)
_SPARKS = ("io.netty", "org.slf4j", "commons-codec", "commons-logging", "org.apache.httpcomponents")
_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


def jars(checkpoint: str) -> Path | None:
    """Return the folder with the jars that this checkpoint needs, or None if it needs none. Raises DownloadError.

    The jars are downloaded on the first call.
    """
    if not _is_there(checkpoint):
        return None
    return fetched(f"S3A {HADOOP}", _MODULES, _ALONE, _SPARKS, megabytes=13)


def settings(checkpoint: str) -> Mapping[str, str]:
    """Return Spark's settings for this checkpoint."""
    if not _is_there(checkpoint):
        return {}
    found = {"spark.sql.streaming.checkpointFileManagerClass": _MANAGER}
    if any(name in os.environ for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR")):
        return found
    found["spark.hadoop.fs.s3a.aws.credentials.provider"] = _CREDENTIALS
    if server := endpoint(checkpoint):
        found |= {"spark.hadoop.fs.s3a.endpoint": server, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found


def endpoint(checkpoint: str) -> str | None:
    """Return the address of this checkpoint's server, or None if the server is Amazon's."""
    if not _is_there(checkpoint):
        return None
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _is_there(checkpoint: str) -> bool:
    return urlsplit(checkpoint).scheme == "s3a"
