"""What our own connections take from a librdkafka client configuration."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from .cluster import Cluster, parse_bootstrap
from .security import SASL_MECHANISMS, Sasl, Security

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_UNSUPPORTED = (
    "ssl.engine.location",
    "ssl.keystore.location",
    "ssl.provider",
    "ssl.providers",
    "ssl.crl.location",
    "ssl.certificate.verify_cb",
    "ssl_engine",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.key",
    "ssl.certificate",
    "ssl_key",
    "ssl_certificate",
    "ssl_ca",
    "ssl.ca",
    "ssl.ca.certificate.stores",
)

_JAVA_PEM: dict[str, dict[str, tuple[str, ...]]] = {
    "truststore": {
        "ssl.truststore.location": ("ssl.ca.location",),
        "ssl.truststore.certificates": ("ssl.ca.pem",),
    },
    "keystore": {
        "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
        "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
        "ssl.keystore.key": ("ssl.key.pem",),
    },
}
"""Java's names for PEM (KIP-651), where the type of a store is PEM, and librdkafka's for the same.
"""


class UnsupportedSetting(ValueError):
    """The configuration asks for something of which our own connections are not capable. One
    line."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach the cluster, and how long to try.

    :param bootstrap_servers: ``"host:port,host:port"``
    :param request_timeout_ms: of one call, retries included
    :param connect_timeout_ms: of one connection's making
    """

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    security: Security

    def cluster(self) -> Cluster:
        """A cluster to be reached like that; nothing is connected yet."""
        return Cluster(
            self.bootstrap_servers,
            client_id=self.client_id,
            timeout_ms=self.request_timeout_ms,
            connect_timeout_ms=self.connect_timeout_ms,
            security=self.security,
        )


def librdkafka_config(conf: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with a list of bootstrap servers made into the string that librdkafka
    reads.
    """
    config = dict(conf)
    for key in ("bootstrap.servers", "metadata.broker.list"):
        if isinstance(config.get(key), list | tuple):
            config[key] = ",".join(map(str, config[key]))
    return config


def from_java(config: Mapping[str, str]) -> dict[str, str]:
    """The same in librdkafka's names, where a configuration was written for Kafka's own clients and
    tools.
    """
    translated = dict(config)
    login = translated.pop("sasl.jaas.config", "")
    for name in ("username", "password"):
        found = re.search(rf"\b{name}\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))", login)
        if found is not None:
            translated.setdefault(f"sasl.{name}", next(filter(None, found.groups()), ""))
    if "default.api.timeout.ms" in translated:
        translated.setdefault("socket.timeout.ms", translated.pop("default.api.timeout.ms"))
    for store, names in _JAVA_PEM.items():
        if translated.get(f"ssl.{store}.type", "").upper() == "PEM":
            del translated[f"ssl.{store}.type"]
            for name in names.keys() & translated.keys():
                translated |= dict.fromkeys(names[name], translated.pop(name))
    return translated


def settings(config: Mapping[str, Any]) -> Settings:
    """Read a librdkafka configuration.

    :raises UnsupportedSetting: what it says about security is not supported here, or wrong
    """
    servers = str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "")
    try:
        parse_bootstrap(_with_ports(servers))
    except ValueError as error:
        raise UnsupportedSetting(f"bootstrap.servers: {error}") from None
    return Settings(
        bootstrap_servers=_with_ports(servers),
        client_id=str(config.get("client.id", "rdkafka")),
        request_timeout_ms=int(config.get("socket.timeout.ms", 60_000)),
        connect_timeout_ms=int(config.get("socket.connection.setup.timeout.ms", 30_000)),
        security=_security(config),
    )


def _with_ports(servers: str) -> str:
    """librdkafka takes hosts without a port, and with a protocol in front."""
    whole = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        bare = server.rpartition("://")[2]
        whole.append(
            bare if bare.rpartition(":")[2].isdigit() and not bare.endswith("]") else f"{bare}:9092"
        )
    return ",".join(whole)


def _security(config: Mapping[str, Any]) -> Security:
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol not in _PROTOCOLS:
        raise UnsupportedSetting(
            f"security.protocol is '{protocol}', not one of {', '.join(_PROTOCOLS)}"
        )
    tls = _tls(config) if protocol.endswith("ssl") else None
    return Security(tls, _sasl(config) if protocol.startswith("sasl") else None)


def _sasl(config: Mapping[str, Any]) -> Sasl:
    mechanism = str(
        config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI"
    ).upper()
    if mechanism not in SASL_MECHANISMS:
        offered = ", ".join(SASL_MECHANISMS)
        raise UnsupportedSetting(
            f"sasl.mechanism {mechanism} is not supported here, but {offered} are"
        )
    missing = [key for key in ("sasl.username", "sasl.password") if key not in config]
    if missing:
        raise UnsupportedSetting(
            f"{' and '.join(missing)} must be set for sasl.mechanism {mechanism}"
        )
    return Sasl(mechanism, str(config["sasl.username"]), str(config["sasl.password"]))


def _tls(config: Mapping[str, Any]) -> ssl.SSLContext:
    unsupported = [key for key in _UNSUPPORTED if config.get(key)]
    if unsupported:
        raise UnsupportedSetting(
            f"{unsupported[0]} is not supported here: give PEM with ssl.ca.*, "
            f"ssl.certificate.* and ssl.key.*"
        )
    context = _trusting(config)
    _show_certificate(context, config)
    if config.get("ssl.cipher.suites"):
        with _named("ssl.cipher.suites"):
            context.set_ciphers(str(config["ssl.cipher.suites"]))
    verified = str(config.get("enable.ssl.certificate.verification", "true")).lower() in (
        "true",
        "1",
    )
    named = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    context.check_hostname = verified and named
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    return context


@contextmanager
def _named(setting: str) -> Iterator[None]:
    """Say which setting it was that could not be used."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or (
            error.args[0] if error.args else error
        )
        raise UnsupportedSetting(f"{setting} cannot be used: {why}") from None


def _trusting(config: Mapping[str, Any]) -> ssl.SSLContext:
    """A context that takes the brokers' certificates for which the given authorities vouch, or the
    system's.
    """
    location, pem = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    if location and location != "probe":
        with _named("ssl.ca.location"):
            if Path(str(location)).is_dir():
                return ssl.create_default_context(capath=str(location))
            return ssl.create_default_context(cafile=str(location))
    with _named("ssl.ca.pem"):
        return ssl.create_default_context(cadata=str(pem) if pem else None)


def _show_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    """Have the client's own certificate at hand for brokers that want one, if there is any."""
    parts = ("ssl.certificate", "ssl.key")
    names = [
        next((n for n in (f"{part}.location", f"{part}.pem") if config.get(n)), None)
        for part in parts
    ]
    certificate, key = names
    if certificate is None or key is None:
        for name, part in zip(reversed(names), parts, strict=True):
            if name is not None:
                raise UnsupportedSetting(
                    f"{name} is set alone: set {part}.location, or {part}.pem, too"
                )
        return
    password = str(config.get("ssl.key.password") or "")
    texts = {}
    for name in (certificate, key):
        with _named(name):
            texts[name] = (
                Path(str(config[name])).read_text()
                if name.endswith(".location")
                else str(config[name])
            )
    if (
        "ENCRYPTED" in texts[key] and not password
    ):  # with none, OpenSSL would ask for it at the terminal
        raise UnsupportedSetting(f"{key} is encrypted: set ssl.key.password")
    # Python takes files only. This one is readable by its owner, and gone at once.
    with NamedTemporaryFile("w", prefix="headrace-", suffix=".pem") as file:
        file.write(f"{texts[key]}\n{texts[certificate]}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except ssl.SSLError as error:
            is_other = "KEY_VALUES_MISMATCH" in str(error)
            wrong = "they do not belong together" if is_other else "they are no PEM"
            hint = f"{wrong}, or ssl.key.password is wrong" if password else wrong
            raise UnsupportedSetting(f"{certificate} and {key} cannot be used: {hint}") from None
