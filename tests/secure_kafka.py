"""An Apache Kafka with listeners for TLS and logins, and the certificates for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.peer import KafkaPeer
from tests.support import free_port_pair

NAME, PASSWORD = "b=o,b", "pa,ss=wörd"
"""User and password of the SCRAM mechanisms; with PLAIN it is ann, s3cret."""
LOGIN = "org.apache.kafka.common.security"
KEY_PASSWORD = "hush"


def _openssl(folder: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)


def _certificates(folder: Path) -> None:
    """ca.pem signs keystore.pem, of the broker at 127.0.0.1, and client.pem with client.key.

    client.p8 is the same key with a password, client-store.pem both as Java has them; nobody
    vouches for stranger.pem.
    """
    key = "-newkey rsa:2048 -nodes"
    usage = "-addext keyUsage=critical,keyCertSign,cRLSign"
    _openssl(folder, f"req -x509 {key} -subj /CN=ca {usage} -keyout ca.key -out ca.pem -days 2")
    (folder / "names").write_text(
        "subjectAltName=IP:127.0.0.1\n"
        "subjectKeyIdentifier=hash\n"
        "authorityKeyIdentifier=keyid:always\n"
    )
    for who in ("broker", "client"):
        _openssl(folder, f"req {key} -subj /CN={who} -keyout {who}.key -out {who}.csr")
        _openssl(
            folder,
            f"x509 -req -in {who}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
            f"-extfile names -out {who}.pem",
        )
    _openssl(folder, "pkcs8 -topk8 -nocrypt -in broker.key -out broker.p8")
    (folder / "keystore.pem").write_text(
        (folder / "broker.p8").read_text() + (folder / "broker.pem").read_text()
    )
    password = f"-passout pass:{KEY_PASSWORD}"
    _openssl(folder, f"pkcs8 -topk8 -in client.key -out client.p8 {password}")
    (folder / "client-store.pem").write_text(
        (folder / "client.p8").read_text() + (folder / "client.pem").read_text()
    )
    stranger = "-keyout stranger.key -out stranger.pem"
    _openssl(folder, f"req -x509 {key} -subj /CN=stranger {stranger} -days 2")


class SecureKafka:
    """Where its listeners are, and the folder of certificates. That of ``tls`` wants a certificate
    from its clients.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "kafka").mkdir()
        _certificates(folder)
        self.peer = KafkaPeer(folder / "kafka", heap="512m")
        secure = free_port_pair(self.peer.port)
        tls = free_port_pair(self.peer.port, secure)
        self.sasl, self.sasl_tls, self.tls = (
            f"127.0.0.1:{port}" for port in (secure, secure + 1, tls)
        )
        advertised = (
            f"PLAINTEXT://{self.peer.bootstrap_servers},SASL_PLAINTEXT://{self.sasl},SASL_SSL://{self.sasl_tls},"
            f"SSL://{self.tls}"
        )
        self.peer.configs = {
            "log.retention.ms": "-1",
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{self.peer.port + 1}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(
                f"{name}:{name}" for name in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
            )
            + ",CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            plain = f'{LOGIN}.plain.PlainLoginModule required user_ann="s3cret";'
            self.peer.configs[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                self.peer.configs[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                    f"{LOGIN}.scram.ScramLoginModule required;"
                )

    def with_certificate(self, form: str | None) -> dict[str, str]:
        """A client's configuration for ``tls``: how it gives its certificate, or that it gives
        none.
        """
        file = {path.name: str(path) for path in self.folder.glob("*.*")}
        text = {name: (self.folder / name).read_text() for name in ("client.pem", "client.p8")}
        password = {"ssl.key.password": KEY_PASSWORD}
        forms: dict[str | None, dict[str, str]] = {
            None: {},
            "files": {
                "ssl.certificate.location": file["client.pem"],
                "ssl.key.location": file["client.key"],
            },
            "password": {
                "ssl.certificate.location": file["client.pem"],
                "ssl.key.location": file["client.p8"],
                **password,
            },
            "inline": {
                "ssl.certificate.pem": text["client.pem"],
                "ssl.key.pem": text["client.p8"],
                **password,
            },
            "java": {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": file["client-store.pem"],
                **password,
            },
            "stranger": {
                "ssl.certificate.location": file["stranger.pem"],
                "ssl.key.location": file["stranger.key"],
            },
        }
        return {"security.protocol": "SSL", "ssl.ca.location": file["ca.pem"], **forms[form]}

    def __enter__(self) -> SecureKafka:
        self.peer.start()
        admin = AdminClient({"bootstrap.servers": self.peer.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion(
                NAME, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            admin.alter_user_scram_credentials([credential])[NAME].result(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.stop()
