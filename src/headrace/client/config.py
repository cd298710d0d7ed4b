"""The configuration of clients under librdkafka's names, read in one place."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

from headrace.protocol.configuration import entries

from .cluster import Cluster, parse_bootstrap
from .errors import ConnectionFailed, UnsupportedSetting
from .sasl import (
    SASL_MECHANISMS,
    Sasl,
    Security,
    TokenCallback,
    TokenEndpoint,
    TokenFile,
    TokenSource,
)


def names(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(text.split())


Settings = Mapping[str, Any]
"""Settings of a client, under librdkafka's names unless said otherwise."""

_CHECK_TIMEOUT_MS = 10_000
_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
JAVA_NAMES = {
    "default.api.timeout.ms": "socket.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.jaas.config": "sasl.username and sasl.password",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Name of Kafka's Java clients → librdkafka's."""
_UNSUPPORTED = names("""
    ssl.ca ssl.ca.certificate.stores ssl.certificate ssl.certificate.verify_cb ssl.crl.location
    ssl.curves.list ssl.engine.location ssl.key ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.provider ssl.providers ssl.sigalgs.list ssl.truststore.certificates
    ssl.truststore.location ssl_ca ssl_certificate ssl_engine ssl_key
""")
"""Settings of TLS that librdkafka and Java have, and our own connections have not."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The addresses, timeouts and security of connections to a cluster.

    :param bootstrap_servers: ``"host:port,host:port"``
    :param client_id: appears in the broker's logs
    :param request_timeout_ms: timeout of one call, retries included
    :param connect_timeout_ms: timeout of opening a connection
    """

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    security: Security

    def cluster(self) -> Cluster:
        """Return a cluster with these settings, without opening a connection."""
        return Cluster(
            self.bootstrap_servers,
            client_id=self.client_id,
            timeout_ms=self.request_timeout_ms,
            connect_timeout_ms=self.connect_timeout_ms,
            security=self.security,
        )


async def check_access(read: ClientConfig) -> None:
    """Send a request to a broker, with the configured TLS and login.

    :raises AuthenticationFailed: the brokers do not accept the security settings; the text says
        which one to change
    :raises ConnectionFailed: no broker answers
    """
    async with read.cluster() as cluster:
        await cluster.metadata()


def check_login(conf: Settings) -> None:
    """Check that the brokers accept the security settings of a client of librdkafka.

    librdkafka retries a refused login without end, and reports it to a callback only. May be called
    in a thread with a running event loop. Do nothing if no broker answers, or if only librdkafka
    supports the settings.

    :raises AuthenticationFailed: see :func:`check_access`
    """
    try:
        read = read_config(conf)
    except UnsupportedSetting:
        return
    read = replace(read, connect_timeout_ms=min(read.connect_timeout_ms, _CHECK_TIMEOUT_MS))
    _run_unless_silent(check_access(read))


def check_token(read: ClientConfig) -> None:
    """Check that OAUTHBEARER has a token.

    librdkafka reports a missing token after ten seconds, and without the reason. May be called in a
    thread with a running event loop. Do nothing for other mechanisms, or if the token endpoint does
    not answer.

    :raises AuthenticationFailed: there is no token
    """
    tokens = read.security.sasl and read.security.sasl.tokens
    if tokens:
        _run_unless_silent(tokens.current())


def _run_unless_silent(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine in a thread of its own; ignore that nobody answers."""
    with ThreadPoolExecutor(1) as pool, suppress(ConnectionFailed):
        pool.submit(asyncio.run, work).result()


def librdkafka_config(conf: Settings) -> dict[str, Any]:
    """Return a configuration for a client of librdkafka, which takes no lists of servers.

    :raises UnsupportedSetting: it has a name of Kafka's Java clients
    """
    for name in JAVA_NAMES.keys() & conf.keys():
        raise UnsupportedSetting(f"{name} is for Kafka's Java clients: use {JAVA_NAMES[name]}")
    config = dict(conf)
    for name in conf.keys() & _SERVERS:
        if isinstance(config[name], list | tuple):
            config[name] = ",".join(map(str, config[name]))
    return config


def read_config(conf: Settings) -> ClientConfig:
    """Read a configuration with librdkafka's names.

    Names that only librdkafka uses are ignored.

    :raises UnsupportedSetting: the servers or a timeout are malformed, or security is wrong or not
        supported
    """
    config = librdkafka_config(conf)
    servers = _with_ports(next((str(config[n]) for n in _SERVERS if config.get(n)), ""))
    try:
        parse_bootstrap(servers)
    except ValueError as error:
        raise UnsupportedSetting(f"bootstrap.servers: {error}") from None
    return ClientConfig(
        bootstrap_servers=servers,
        client_id=str(config.get("client.id", "rdkafka")),
        request_timeout_ms=_milliseconds(config, "socket.timeout.ms", 60_000),
        connect_timeout_ms=_milliseconds(config, "socket.connection.setup.timeout.ms", 30_000),
        security=_security(config),
    )


def _milliseconds(config: Settings, name: str, default: int) -> int:
    text = config.get(name, default)
    try:
        return int(text)
    except (TypeError, ValueError):
        raise UnsupportedSetting(f"{name} is '{text}', not a number of milliseconds") from None


def _with_ports(servers: str) -> str:
    """Drop protocols and add missing ports: librdkafka accepts both."""
    with_ports = []
    for server in entries(servers):
        bare = server.rpartition("://")[2]
        has_port = bare.rpartition(":")[2].isdigit() and not bare.endswith("]")
        with_ports.append(bare if has_port else f"{bare}:9092")
    return ",".join(with_ports)


def _security(config: Settings) -> Security:
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol not in _PROTOCOLS:
        raise UnsupportedSetting(
            f"security.protocol is '{protocol}', not one of {', '.join(_PROTOCOLS)}"
        )
    tls = _tls(config) if protocol.endswith("ssl") else None
    return Security(tls, _sasl(config) if protocol.startswith("sasl") else None)


def _sasl(config: Settings) -> Sasl:
    mechanism = str(
        config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI"
    ).upper()
    if mechanism not in SASL_MECHANISMS:
        offered = ", ".join(SASL_MECHANISMS)
        raise UnsupportedSetting(
            f"sasl.mechanism {mechanism} is not supported here: use one of {offered}"
        )
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, tokens=_tokens(config))
    _require(config, mechanism, "sasl.username", "sasl.password")
    return Sasl(mechanism, str(config["sasl.username"]), str(config["sasl.password"]))


def _require(config: Settings, mechanism: str, *names: str) -> None:
    missing = [name for name in names if name not in config]
    if missing:
        raise UnsupportedSetting(
            f"{' and '.join(missing)} must be set for sasl.mechanism {mechanism}"
        )


def _tokens(config: Settings) -> TokenSource:
    """Return the tokens of OAUTHBEARER, under librdkafka's names."""
    callback = config.get("oauth_cb")
    if isinstance(callback, TokenFile):
        return TokenSource(callback.fetch, renewal=0)  # others renew the file
    text = str(config.get("sasl.oauthbearer.config") or "")
    if callback is not None:
        return TokenSource(TokenCallback(callback, text))
    if str(config.get("sasl.oauthbearer.method", "default")).lower() == "oidc":
        return TokenSource(_endpoint(config))
    raise UnsupportedSetting(
        "sasl.mechanism OAUTHBEARER needs tokens: set sasl.oauthbearer.token.endpoint.url and "
        "sasl.oauthbearer.method=oidc, or oauth_cb"
    )


def _endpoint(config: Settings) -> TokenEndpoint:
    settings = dict(config)
    for part in ("id", "secret"):  # librdkafka's names, and those of Kafka 4.1
        other = f"sasl.oauthbearer.client.credentials.client.{part}"
        if other in settings:
            settings.setdefault(f"sasl.oauthbearer.client.{part}", settings[other])
    names = ("token.endpoint.url", "client.id", "client.secret")
    url, client_id, client_secret = (f"sasl.oauthbearer.{name}" for name in names)
    _require(settings, "OAUTHBEARER", url, client_id, client_secret)
    grant = str(settings.get("sasl.oauthbearer.grant.type", "client_credentials"))
    if grant != "client_credentials":
        raise UnsupportedSetting(
            f"sasl.oauthbearer.grant.type {grant} is not supported here: use client_credentials"
        )
    with _named(url):
        address = urlsplit(str(settings[url]))
        if address.scheme not in ("https", "http") or not address.hostname:
            raise ValueError("it is not a URL with https or http")
    return TokenEndpoint(
        str(settings[url]),
        str(settings[client_id]),
        str(settings[client_secret]),
        str(settings.get("sasl.oauthbearer.scope") or "") or None,
        _extensions(str(settings.get("sasl.oauthbearer.extensions") or "")),
        _trusting(config, "https") if address.scheme == "https" else None,
    )


def _extensions(text: str) -> dict[str, str]:
    """Split SASL extensions of the form NAME=VALUE,NAME=VALUE."""
    extensions = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.strip().partition("=")
        if not (name and value):
            raise UnsupportedSetting(
                "sasl.oauthbearer.extensions cannot be used: expected NAME=VALUE"
            )
        extensions[name] = value
    return extensions


def _tls(config: Settings) -> ssl.SSLContext:
    for name in sorted(_UNSUPPORTED & config.keys()):
        if config[name]:
            raise UnsupportedSetting(
                f"{name} is not supported here: give PEM with ssl.ca.*, ssl.certificate.* and "
                "ssl.key.*"
            )
    context = _trusting(config)
    _show_certificate(context, config)
    if config.get("ssl.cipher.suites"):
        with _named("ssl.cipher.suites"):
            context.set_ciphers(str(config["ssl.cipher.suites"]))
    verify = str(config.get("enable.ssl.certificate.verification", "true"))
    verified = verify.lower() in ("true", "1")
    named = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    context.check_hostname = verified and named
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    return context


@contextmanager
def _named(setting: str) -> Iterator[None]:
    """Name the setting in errors raised inside.

    :raises UnsupportedSetting: an OSError or ValueError was raised inside
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or (
            error.args[0] if error.args else error
        )
        raise UnsupportedSetting(f"{setting} cannot be used: {reason}") from None


def _trusting(config: Settings, prefix: str = "ssl") -> ssl.SSLContext:
    """Return a context that trusts the configured certificate authorities, or the system's.

    :param prefix: of the settings: ``ssl`` for brokers, ``https`` for token endpoints
    """
    location, pem = config.get(f"{prefix}.ca.location"), config.get(f"{prefix}.ca.pem")
    if location and location != "probe":
        with _named(f"{prefix}.ca.location"):
            if Path(str(location)).is_dir():
                return ssl.create_default_context(capath=str(location))
            return ssl.create_default_context(cafile=str(location))
    with _named(f"{prefix}.ca.pem"):
        return ssl.create_default_context(cadata=str(pem) if pem else None)


def _show_certificate(context: ssl.SSLContext, config: Settings) -> None:
    """Load the client's certificate and key, if they are configured.

    :raises UnsupportedSetting: one is missing, or they cannot be loaded
    """
    certificate, key = _form_of("ssl.certificate", config), _form_of("ssl.key", config)
    if certificate is None or key is None:
        for name, missing in ((certificate, "ssl.key"), (key, "ssl.certificate")):
            if name is not None:
                raise UnsupportedSetting(
                    f"{name} is set alone: also set {missing}.location or {missing}.pem"
                )
        return
    password = str(config.get("ssl.key.password") or "")
    key_pem, certificate_pem = _pem(key, config), _pem(certificate, config)
    # Without a password, OpenSSL would ask for it on the terminal.
    if "ENCRYPTED" in key_pem and not password:
        raise UnsupportedSetting(f"{key} is encrypted: set ssl.key.password")
    # Python loads certificates from files only. This one is private, and deleted at once.
    with NamedTemporaryFile("w", prefix="headrace-", suffix=".pem") as file:
        file.write(f"{key_pem}\n{certificate_pem}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except ssl.SSLError as error:
            is_mismatch = "KEY_VALUES_MISMATCH" in str(error)
            reason = "they do not belong together" if is_mismatch else "they are not PEM"
            if password:
                reason += ", or ssl.key.password is wrong"
            raise UnsupportedSetting(f"{certificate} and {key} cannot be used: {reason}") from None


def _form_of(part: str, config: Settings) -> str | None:
    """Return the setting that has the certificate or the key, if there is one."""
    return next((name for name in (f"{part}.location", f"{part}.pem") if config.get(name)), None)


def _pem(name: str, config: Settings) -> str:
    """Return the text of a setting, or of the file that it names."""
    text = str(config[name])
    with _named(name):
        return Path(text).read_text() if name.endswith(".location") else text
