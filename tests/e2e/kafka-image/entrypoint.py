"""Start a KRaft broker whose settings come from the environment, as in the apache/kafka image.

`KAFKA_NODE_ID=1` becomes `node.id=1`: the prefix is removed, letters become lower-case, `_` becomes a dot, `__` an
underscore and `___` a dash. `CLUSTER_ID` is the id of the cluster. Missing settings are those of a single broker.
"""

import os
import subprocess
import tempfile
from pathlib import Path

PROGRAM = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.apache.logging.log4j.level=INFO", "-cp", "/opt/kafka/libs/*"]
NOT_SETTINGS = {"KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_VERSION"}
ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/tmp/kraft-combined-logs",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def setting(variable: str) -> str:
    """Return the broker's name for an environment variable that begins with KAFKA_."""
    name = variable.removeprefix("KAFKA_").lower()
    return name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\0", "-").replace("\1", "_")


def main() -> None:
    """Write the settings, format the log folder on the first start, and replace this process by the broker."""
    given = {
        setting(name): value
        for name, value in os.environ.items()
        if name.startswith("KAFKA_") and name not in NOT_SETTINGS
    }
    settings = Path(tempfile.gettempdir(), "server.properties")
    settings.write_text("".join(f"{name}={value}\n" for name, value in {**ALONE, **given}.items()))
    cluster = os.environ.get("CLUSTER_ID", "5L6g3nShT-eMCtK--X86sw")
    formatting = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", str(settings)]
    subprocess.run([*PROGRAM, *formatting], check=True)
    os.execvp(PROGRAM[0], [*PROGRAM, "kafka.Kafka", str(settings)])


if __name__ == "__main__":
    main()
