"""What our own connections take from a librdkafka client configuration."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cluster import Cluster, parse_bootstrap
from .security import SASL_MECHANISMS, Sasl, Security

_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_UNSUPPORTED = (
    "ssl.engine.location", "ssl.keystore.location", "ssl.provider", "ssl.providers", "ssl.crl.location",
    "ssl.certificate.verify_cb", "ssl_engine", "ssl.curves.list", "ssl.sigalgs.list", "ssl.key.pem", "ssl.key",
    "ssl.certificate.pem", "ssl.certificate", "ssl_key", "ssl_certificate", "ssl_ca", "ssl.ca",
    "ssl.ca.certificate.stores",
)  # fmt: skip


class UnsupportedSetting(ValueError):
    """The configuration asks for something of which our own connections are not capable. One line."""


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
    """The configuration with a list of bootstrap servers made into the string that librdkafka reads."""
    config = dict(conf)
    for key in ("bootstrap.servers", "metadata.broker.list"):
        if isinstance(config.get(key), list | tuple):
            config[key] = ",".join(map(str, config[key]))
    return config


def from_java(config: Mapping[str, str]) -> dict[str, str]:
    """The same in librdkafka's names, where a configuration was written for Kafka's own clients and tools."""
    translated = dict(config)
    login = translated.pop("sasl.jaas.config", "")
    for name in ("username", "password"):
        found = re.search(rf"\b{name}\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))", login)
        if found is not None:
            translated.setdefault(f"sasl.{name}", next(filter(None, found.groups()), ""))
    if "default.api.timeout.ms" in translated:
        translated.setdefault("socket.timeout.ms", translated.pop("default.api.timeout.ms"))
    if translated.get("ssl.truststore.type", "").upper() == "PEM":
        del translated["ssl.truststore.type"]
        if "ssl.truststore.location" in translated:
            translated["ssl.ca.location"] = translated.pop("ssl.truststore.location")
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
        whole.append(bare if bare.rpartition(":")[2].isdigit() and not bare.endswith("]") else f"{bare}:9092")
    return ",".join(whole)


def _security(config: Mapping[str, Any]) -> Security:
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol not in _PROTOCOLS:
        raise UnsupportedSetting(f"security.protocol is '{protocol}', not one of {', '.join(_PROTOCOLS)}")
    tls = _tls(config) if protocol.endswith("ssl") else None
    return Security(tls, _sasl(config) if protocol.startswith("sasl") else None)


def _sasl(config: Mapping[str, Any]) -> Sasl:
    mechanism = str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in SASL_MECHANISMS:
        offered = ", ".join(SASL_MECHANISMS)
        raise UnsupportedSetting(f"sasl.mechanism {mechanism} is not supported here, but {offered} are")
    missing = [key for key in ("sasl.username", "sasl.password") if key not in config]
    if missing:
        raise UnsupportedSetting(f"{' and '.join(missing)} must be set for sasl.mechanism {mechanism}")
    return Sasl(mechanism, str(config["sasl.username"]), str(config["sasl.password"]))


def _tls(config: Mapping[str, Any]) -> ssl.SSLContext:
    unsupported = [key for key in _UNSUPPORTED if config.get(key)]
    if unsupported:
        raise UnsupportedSetting(f"{unsupported[0]} is not supported here: give PEM files with ssl.*.location")
    try:
        context = ssl.create_default_context()
        authority = config.get("ssl.ca.location")
        if authority and authority != "probe":
            if Path(authority).is_dir():
                context = ssl.create_default_context(capath=str(authority))
            else:
                context = ssl.create_default_context(cafile=str(authority))
        elif config.get("ssl.ca.pem"):
            context = ssl.create_default_context(cadata=str(config["ssl.ca.pem"]))
        if config.get("ssl.certificate.location"):
            context.load_cert_chain(
                str(config["ssl.certificate.location"]),
                str(config["ssl.key.location"]) if config.get("ssl.key.location") else None,
                str(config["ssl.key.password"]) if config.get("ssl.key.password") else None,
            )
        if config.get("ssl.cipher.suites"):
            context.set_ciphers(str(config["ssl.cipher.suites"]))
    except OSError as error:  # ssl.SSLError is one
        raise UnsupportedSetting(f"the TLS settings cannot be used: {error.strerror or error}") from None
    verified = str(config.get("enable.ssl.certificate.verification", "true")).lower() in ("true", "1")
    named = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    context.check_hostname = verified and named
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    return context
