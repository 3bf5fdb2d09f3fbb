"""The control plane of a Kubernetes cluster: a real etcd and a real API server, as processes on this machine.

etcd is Debian's (`apt-get install etcd-server`). `make kubernetes` builds the API server once from its Go module, which
takes some minutes on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from rowkind.cache import cache
from rowkind.service.machine.ports import free_port
from tests.run.process import until

_VERSION = "1.37.2"
_STAGED = (
    *("api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go", "cloud-provider"),
    *("cluster-bootstrap", "code-generator", "component-base", "component-helpers", "controller-manager", "cri-api"),
    *("cri-client", "cri-streaming", "csi-translation-lib", "dynamic-resource-allocation", "endpointslice"),
    *("externaljwt", "kms", "kube-aggregator", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl"),
    *("kubelet", "metrics", "mount-utils", "pod-security-admission", "streaming"),
)
"""The modules that Kubernetes keeps in its own tree and publishes with the same number, as 0.x instead of 1.x."""

_SOURCE = Path(__file__).parent / "apiserver" / "main.go"
_ADDRESS = "127.1.0.1"
"""The API server's address.

It listens at port 443, the port of its name in the cluster, which needs root; so does Docker.
"""

_ADMIN = "admin"
_ASKED = "ROWKIND_KUBERNETES"


def binary() -> Path:
    """Return the path of the API server, whether it has been built or not."""
    return cache() / f"kube-apiserver-{_VERSION}"


def missing() -> str:
    """Return what is missing; an empty text if all is there."""
    if not os.environ.get(_ASKED):
        return f"pods are made where {_ASKED}=1 asks for them"
    if shutil.which("etcd") is None:
        return "etcd is not installed: apt-get install etcd-server"
    return "" if binary().exists() else "the API server is not built: make kubernetes"


def build() -> None:
    """Build the API server, unless it exists."""
    if binary().exists():
        return
    binary().parent.mkdir(parents=True, exist_ok=True)
    same = f"v0{_VERSION.removeprefix('1')}"
    replaced = "\n".join(f"replace k8s.io/{name} => k8s.io/{name} {same}" for name in _STAGED)
    number = "-X k8s.io/component-base/version.git"
    flags = f"-s -w {number}Version=v{_VERSION} {number}Major=1 {number}Minor={_VERSION.split('.')[1]}"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(_SOURCE, folder)
        Path(folder, "go.mod").write_text(
            f"module apiserver\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v{_VERSION}\n\n{replaced}\n"
        )
        command = ["go", "build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", "apiserver", "."]
        subprocess.run(command, cwd=folder, check=True)
        shutil.move(Path(folder, "apiserver"), binary())


class ApiError(Exception):
    """The API server has refused a request; `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}")


class ControlPlane:
    """A running control plane, as a context manager.

    The user `admin` may do everything. Each of the other `users` may do what roles allow, and nothing at first.
    """

    def __init__(self, folder: Path, *users: str) -> None:
        self.folder = folder
        self._tokens = {user: f"{user}-token" for user in (_ADMIN, *users)}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._authority = trustme.CA()
        self._trust = ssl.create_default_context()
        self._authority.configure_trust(self._trust)

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return f"https://{_ADDRESS}:443"

    @property
    def address(self) -> str:
        """The address under which pods reach the API server."""
        return _ADDRESS

    @property
    def names(self) -> tuple[str, ...]:
        """The host names by which pods call the API server."""
        return "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"

    @property
    def master(self) -> str:
        """The value for `--master`."""
        return f"k8s://{self.url}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write()
        stored, among = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = ["etcd", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--logger", "zap"]
        etcd += ["--listen-client-urls", stored, "--advertise-client-urls", stored]
        etcd += ["--listen-peer-urls", among, "--initial-advertise-peer-urls", among]
        self._start("etcd", [*etcd, "--initial-cluster", f"default={among}"])
        settings = {
            "etcd-servers": stored,
            "bind-address": _ADDRESS,
            "secure-port": 443,
            "tls-cert-file": self.folder / "server.pem",
            "tls-private-key-file": self.folder / "server.key",
            "client-ca-file": self.authority,
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.folder / "accounts.key",
            "service-account-signing-key-file": self.folder / "accounts.key",
            "service-cluster-ip-range": "10.96.0.0/16",
            # The watch cache needs progress notifications, which Debian's etcd does not send: it would never become
            # ready.
            "watch-cache": "false",
            "feature-gates": "WatchList=false",
        }
        self._start("apiserver", [str(binary()), *(f"--{name}={value}" for name, value in settings.items())])
        until(self._ready, "an API server", lambda: (self.folder / "apiserver.log").read_text()[-3000:])
        # A controller would create these objects, but there is none.
        self.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        trusted = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self.authority.read_text()}}
        self.create("/api/v1/namespaces/default/configmaps", trusted)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # There is nothing to keep, and on SIGTERM the two would wait for each other for minutes.
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    @property
    def authority(self) -> Path:
        """The certificate of the authority that has signed the API server's certificate."""
        return self.folder / "ca.pem"

    def kubeconfig(self, user: str = _ADMIN) -> Path:
        """Write a kubeconfig file for `user`, and return its path."""
        path = self.folder / f"{user}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": self._tokens.get(user, "wrong")}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def create(self, path: str, what: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object under a path such as `/api/v1/namespaces/default/pods`. Raises ApiError."""
        return self.ask("POST", path, what)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request as `admin`, and return the answer. Raises ApiError."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._tokens[_ADMIN]}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30, context=self._trust) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read().decode(errors="replace")) from None
        return found

    def allow(self, user: str, namespace: str, resource: str, *verbs: str) -> None:
        """Allow a user these verbs on one kind of objects in one namespace."""
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        name = {"metadata": {"name": f"{user}-{resource}"}}
        self.create(f"{roles}/roles", name | {"rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"{user}-{resource}"}
        who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        self.create(f"{roles}/rolebindings", name | {"roleRef": role, "subjects": [who]})

    def _write(self) -> None:
        """Write the files that the API server reads."""
        self._authority.cert_pem.write_to_path(str(self.authority))
        served = self._authority.issue_cert(_ADDRESS, *self.names)
        served.private_key_pem.write_to_path(str(self.folder / "server.key"))
        for part in served.cert_chain_pems:
            part.write_to_path(str(self.folder / "server.pem"), append=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (self.folder / "accounts.key").write_bytes(key.private_bytes(*form))
        rows = [f'{token},{user},{user},"system:masters"' for user, token in self._tokens.items() if user == _ADMIN]
        rows += [f"{token},{user},{user}" for user, token in self._tokens.items() if user != _ADMIN]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, "GOMAXPROCS": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _ready(self) -> bool:
        assert self._processes[-1].poll() is None, (self.folder / "apiserver.log").read_text()[-3000:]
        try:
            asked = urllib.request.Request(f"{self.url}/readyz")
            with urllib.request.urlopen(asked, timeout=5, context=self._trust) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


if __name__ == "__main__":
    build()
    sys.exit(missing())
