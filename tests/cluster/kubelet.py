"""A node of a Kubernetes cluster, as far as the tests need one: pods run as containers on this machine.

It replaces the controllers, the scheduler, the kubelet and the cluster's DNS. The last two need kernel permissions that
test machines do not have. It takes every pod without a node from the API server, runs its single container with Docker
on the host's network, reports its status, and removes it when it is deleted. Each pod has its own address in the
loopback network. Volume claims are folders. A pod gets the names of headless services when it starts. A StatefulSet has
one pod, according to its current template. Pods whose owner is gone are deleted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster.control_plane import ApiError, ControlPlane

_LOOK_SECONDS = 0.3
_FIRST_ADDRESS = 100
_REVISION = "controller-revision-hash"
Manifest = Mapping[str, Any]


@dataclass
class Pod:
    """A pod that runs here, or has run."""

    name: str
    namespace: str
    uid: str
    address: str
    folder: Path
    container: str
    process: subprocess.Popen[bytes] | None = None
    told: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path of the pod in the API server."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def log(self) -> str:
        """The output of its container."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether its container is running."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to all processes in the pod; its failure is then reported to the API server."""
        subprocess.run(["docker", "kill", self.uid], check=False, capture_output=True)


class Kubelet:
    """The node, as a context manager; pods that are left at the end are killed."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._pods: dict[str, Pod] = {}
        self._addresses = count(_FIRST_ADDRESS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name="kubelet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        for pod in self._pods.values():
            pod.kill()
            if pod.process is not None:
                pod.process.wait()

    def pods(self, **labels: str) -> list[Pod]:
        """Return the pods with these labels whose containers are running."""
        asked = ",".join(f"{name.replace('_', '-')}%3D{value}" for name, value in labels.items())
        found = self._plane.ask("GET", f"/api/v1/pods?labelSelector={asked}")["items"]
        here = (self._pods.get(pod["metadata"]["uid"]) for pod in found)
        return [pod for pod in here if pod is not None and pod.running]

    def said(self, name: str) -> str:
        """Return the output of all pods of this name, one after the other."""
        return "\n".join(pod.log for pod in self._pods.values() if pod.name == name and pod.process is not None)

    def _live(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            pods = self._plane.ask("GET", "/api/v1/pods")["items"]
            sets = self._plane.ask("GET", "/apis/apps/v1/statefulsets")["items"]
            for each in sets:
                with suppress(ApiError):  # it was deleted or changed meanwhile; the next round sees that
                    self._replicate(each, pods)
            owners = {each["metadata"]["uid"] for each in (*pods, *sets)}
            for manifest in pods:
                with suppress(ApiError):
                    self._let_go(manifest["metadata"], owners)
                    self._see_to(manifest)

    def _replicate(self, of: Manifest, pods: list[Manifest]) -> None:
        """Ensure that a StatefulSet has its pod; a pod of an older template is replaced."""
        about, template = of["metadata"], of["spec"]["template"]
        name, space = f"{about['name']}-0", about["namespace"]
        revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
        there = next((each["metadata"] for each in pods if each["metadata"]["name"] == name), None)
        path = f"/api/v1/namespaces/{space}/pods"
        if there is not None:
            if there["labels"][_REVISION] != revision and "deletionTimestamp" not in there:
                self._plane.ask("DELETE", f"{path}/{name}")
            return
        claims = [each["metadata"]["name"] for each in of["spec"].get("volumeClaimTemplates", [])]
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in claims]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": about["name"], "uid": about["uid"]}
        pod = {
            "metadata": {
                "name": name,
                "labels": {**template["metadata"]["labels"], _REVISION: revision},
                "annotations": template["metadata"].get("annotations", {}),
                "ownerReferences": [owner],
            },
            "spec": {**template["spec"], "volumes": [*template["spec"].get("volumes", []), *volumes]},
        }
        self._plane.create(path, pod)

    def _let_go(self, about: Manifest, owners: set[str]) -> None:
        """Delete a pod whose owners are gone."""
        owned = about.get("ownerReferences", [])
        if owned and not any(each["uid"] in owners for each in owned) and "deletionTimestamp" not in about:
            self._plane.ask("DELETE", f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}")

    def _see_to(self, manifest: Manifest) -> None:
        about = manifest["metadata"]
        pod = self._pods.get(about["uid"])
        if "deletionTimestamp" in about:
            if pod is not None and pod.running:
                seconds = str(about.get("deletionGracePeriodSeconds", 30))
                subprocess.run(["docker", "stop", "--time", seconds, pod.uid], check=False, capture_output=True)
            path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
            self._plane.ask("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": about["uid"]}})
        elif pod is None:
            self._take(manifest)
        else:
            self._tell(pod, manifest)

    def _take(self, manifest: Manifest) -> None:
        """Bind a pod to this node, and run it."""
        about, (spec,) = manifest["metadata"], manifest["spec"]["containers"]
        folder = self._folder / about["uid"]
        folder.mkdir(parents=True, mode=0o755)
        address = f"127.0.0.{next(self._addresses)}"
        pod = Pod(about["name"], about["namespace"], about["uid"], address, folder, spec["name"])
        if not manifest["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "here"}
            self._plane.create(f"{pod.path}/binding", {"metadata": {"name": pod.name}, "target": target})
        self._pods[pod.uid] = pod
        if subprocess.run(["docker", "image", "inspect", spec["image"]], check=False, capture_output=True).returncode:
            waiting = {"reason": "ErrImagePull", "message": f"there is no image {spec['image']}"}
            self._say(pod, "Pending", {"waiting": waiting})
            return
        command = ["docker", "run", "--rm", "--network", "host", "--name", pod.uid, *self._options(pod, manifest)]
        entry = spec.get("command", [])
        command += ["--entrypoint", entry[0]] if entry else []
        with (folder / "log").open("wb") as log:
            pod.process = subprocess.Popen(
                [*command, spec["image"], *entry[1:], *spec.get("args", [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._say(pod, "Running", {"running": {}})

    def _tell(self, pod: Pod, manifest: Manifest) -> None:
        """Report that a pod has ended, if it has."""
        if pod.process is None or pod.running or pod.told in {"Failed", "Succeeded"}:
            return
        code = pod.process.returncode
        if manifest["spec"]["restartPolicy"] == "Always":
            # A container that must always run is replaced by a new pod, which is all that a controller does here.
            self._plane.ask("DELETE", pod.path, {"gracePeriodSeconds": 0})
            return
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": pod.log[-500:]}
        self._say(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def _say(self, pod: Pod, phase: str, state: Manifest) -> None:
        running = "running" in state
        container = {"name": pod.container, "state": state, "ready": running, "started": running, "restartCount": 0}
        container |= {"image": "", "imageID": ""}
        status = {
            "phase": phase,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": str(running)}],
        }
        self._plane.ask("PATCH", f"{pod.path}/status", {"status": status})
        pod.told = phase

    def _options(self, pod: Pod, manifest: Manifest) -> Iterator[str]:
        """Yield Docker's options for a pod."""
        spec: Mapping[str, Any] = manifest["spec"]
        (container,) = spec["containers"]
        secured = spec.get("securityContext", {}) | container.get("securityContext", {})
        if "runAsUser" in secured:
            yield f"--user={secured['runAsUser']}:{secured.get('runAsGroup', secured['runAsUser'])}"
        if secured.get("readOnlyRootFilesystem"):
            yield "--read-only"
        if not secured.get("allowPrivilegeEscalation", True):
            yield "--security-opt=no-new-privileges"
        for capability in secured.get("capabilities", {}).get("drop", []):
            yield f"--cap-drop={capability}"
        for each in container.get("env", []):
            reference = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            known = {"status.podIP": pod.address, "metadata.name": pod.name, "metadata.namespace": pod.namespace}
            yield f"--env={each['name']}={known.get(reference, each.get('value', ''))}"
        yield from (f"--hostname={pod.name}", f"--add-host={pod.name}:{pod.address}")
        yield f"--env=KUBERNETES_SERVICE_HOST={self._plane.address}"
        yield "--env=KUBERNETES_SERVICE_PORT=443"
        for name in self._plane.names:
            yield f"--add-host={name}:{self._plane.address}"
        volumes = {volume["name"]: self._volume(pod, volume) for volume in spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            source = volumes[mount["name"]] / mount.get("subPath", "")
            yield f"--volume={source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"
        for service in self._plane.ask("GET", f"/api/v1/namespaces/{pod.namespace}/services")["items"]:
            if service["spec"].get("clusterIP") == "None":
                name = service["metadata"]["name"]
                full = f"{name}.{pod.namespace}.svc"
                for address in self._behind(pod, manifest, service["spec"].get("selector", {})):
                    yield from (f"--add-host={each}:{address}" for each in (name, full, f"{full}.cluster.local"))

    def _behind(self, started: Pod, manifest: Manifest, selector: Mapping[str, str]) -> Iterator[str]:
        """Yield the addresses of the pods that a service selects, including the pod that is being started."""
        if selector.items() <= manifest["metadata"].get("labels", {}).items():
            yield started.address
        else:
            asked = ",".join(f"{name}%3D{value}" for name, value in selector.items())
            found = self._plane.ask("GET", f"/api/v1/namespaces/{started.namespace}/pods?labelSelector={asked}")
            yield from (each["status"]["podIP"] for each in found["items"] if each["status"].get("podIP"))

    def _volume(self, pod: Pod, volume: Manifest) -> Path:
        """Return the folder or file on this machine that a pod sees as its volume."""
        folder = pod.folder / volume["name"]
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if "persistentVolumeClaim" in volume:
            folder = self._folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        for source in volume.get("projected", {}).get("sources", [volume]):
            self._fill(pod, folder, source)
        return folder

    def _fill(self, pod: Pod, folder: Path, source: Manifest) -> None:
        """Write the files of a volume of this kind."""
        space = f"/api/v1/namespaces/{pod.namespace}"
        if "configMap" in source:
            held = source["configMap"]
            data = self._plane.ask("GET", f"{space}/configmaps/{held['name']}").get("data", {})
            _put(folder, held.get("items", []), {name: text.encode() for name, text in data.items()})
        elif "secret" in source:
            held = source["secret"]
            data = self._plane.ask("GET", f"{space}/secrets/{held.get('secretName', held.get('name'))}").get("data", {})
            _put(folder, held.get("items", []), {name: base64.b64decode(text) for name, text in data.items()})
        elif "serviceAccountToken" in source:
            held = source["serviceAccountToken"]
            owner = self._plane.ask("GET", pod.path)["spec"]["serviceAccountName"]
            wanted = {"spec": {"expirationSeconds": held.get("expirationSeconds", 3600)}}
            made = self._plane.create(f"{space}/serviceaccounts/{owner}/token", wanted)
            _put(folder, [], {held["path"]: made["status"]["token"].encode()})
        elif "downwardAPI" in source:
            _put(folder, [], {"namespace": pod.namespace.encode()})


def _put(folder: Path, items: list[Manifest], data: Mapping[str, bytes]) -> None:
    paths = {item["key"]: item["path"] for item in items} or {name: name for name in data}
    for name, path in paths.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data[name])
