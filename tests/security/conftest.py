"""A broker that requires authentication and has access control lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port

PASSWORD = "planted-password-of-the-job"
LISTENERS = {"TLS": "SSL", "MTLS": "SSL", "PLAIN": "SASL_SSL", "SCRAM": "SASL_SSL", "OAUTH": "SASL_SSL"}


@dataclass
class SecuredBroker:
    """A broker with a listener for each way to authenticate, and a plaintext one without restrictions."""

    servers: str
    ports: Mapping[str, int]
    certificates: Path

    def client(self, way: str) -> dict[str, str]:
        """Return client settings of the user `job` for one way; with TLS alone the client is anonymous."""
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.ports[way]}",
            "security.protocol": LISTENERS[way],
            "ssl.ca.location": str(self.certificates / "ca.pem"),
        }
        match way:
            case "MTLS":
                settings["ssl.certificate.location"] = str(self.certificates / "client.pem")
                settings["ssl.key.location"] = str(self.certificates / "client.pem")
            case "PLAIN" | "SCRAM":
                settings["sasl.mechanism"] = "PLAIN" if way == "PLAIN" else "SCRAM-SHA-512"
                settings |= {"sasl.username": "job", "sasl.password": PASSWORD}
            case "OAUTH":
                settings |= {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
                settings["sasl.oauthbearer.config"] = "principal=job"
        return settings


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The broker, with an authorizer that gives all rights only to the anonymous user."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, identity in (("server.pem", "127.0.0.1"), ("client.pem", "job")):
        (folder / name).write_bytes(_pem(authority.issue_cert(identity)))
    port, controller = free_port(), free_port()
    ports = {name: free_port() for name in LISTENERS}
    with Broker(None, port, _settings(folder, port, controller, ports)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("job", scram, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result()
        yield SecuredBroker(broker.bootstrap_servers, ports, folder)


def _pem(issued: trustme.LeafCert) -> bytes:
    """Return key and certificates in one file; Java reads keys in PKCS#8 only."""
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain + b"".join(part.bytes() for part in issued.cert_chain_pems)


def _settings(folder: Path, port: int, controller: int, ports: Mapping[str, int]) -> dict[str, str | int]:
    every = {"INTERNAL": port, **ports}
    addresses = [f"{name}://127.0.0.1:{number}" for name, number in every.items()]
    protocols = {"INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
    modules = "org.apache.kafka.common.security"
    return {
        "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{controller}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^.*$/job/",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": (
            f'{modules}.plain.PlainLoginModule required user_job="{PASSWORD}";'
        ),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": (
            f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


MakeJob = Callable[..., Path]
