"""Configuration under the names of Kafka's Java clients, converted where it comes in: properties
files of commands, options of Spark.

A properties file has settings of librdkafka, of Kafka's Java clients, and of what they load:
serializers, interceptors, a schema registry. Kafka's own tools warn of names that they do not know.
Here they are ignored, unless a name looks like a mistyped one, or would change how connections are
secured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.patterns import meant
from headrace.protocol.configuration import parts
from headrace.security import jaas

from .config import JAVA_NAMES, Settings, names
from .errors import UnsupportedSetting
from .sasl import TokenFile

_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""Java's class → the name of the assignor, which librdkafka takes."""
_PEM: dict[str, tuple[str, ...]] = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}
"""Java's names of the settings of stores in PEM (KIP-651) → librdkafka's names."""
_TOKEN_CLASSES: dict[str, tuple[str, ...]] = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "FileJwtRetriever",
        "ClientCredentialsJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": ("DefaultJwtValidator", "ClientJwtValidator"),
}
"""Setting → Kafka's classes for it that are supported."""
_TOKEN_OPTIONS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
"""Option in ``sasl.jaas.config`` → librdkafka's name."""
_EXTENSION = "extension_"


def from_java(config: Settings) -> dict[str, Any]:
    """Return a configuration with librdkafka's names.

    :param config: may have names of both
    :raises UnsupportedSetting: ``sasl.jaas.config`` cannot be read
    """
    translated = dict(config)
    if translated.get("ssl.endpoint.identification.algorithm") == "":
        translated["ssl.endpoint.identification.algorithm"] = "none"
    options = _login_options(translated.pop("sasl.jaas.config", None))
    for name in ("username", "password"):
        if name in options:
            translated.setdefault(f"sasl.{name}", options[name])
    for name in JAVA_NAMES.keys() & translated.keys():
        value = translated.pop(name)
        if str(value) != "-1":  # Java's word for the system's default
            translated.setdefault(JAVA_NAMES[name], value)
    _translate_values(translated)
    for store in ("ssl.truststore.", "ssl.keystore."):
        if str(translated.get(f"{store}type", "")).upper() == "PEM":
            del translated[f"{store}type"]
            for name in _PEM.keys() & translated.keys():
                if name.startswith(store):
                    translated |= dict.fromkeys(_PEM[name], translated.pop(name))
    mechanism = translated.get("sasl.mechanism") or translated.get("sasl.mechanisms")
    if str(mechanism).upper() == "OAUTHBEARER":
        _translate_tokens(translated, options)
    return translated


def _login_options(login: object) -> Mapping[str, str]:
    if login is None:
        return {}
    try:
        return jaas.parse(str(login)).options
    except jaas.InvalidJaas:  # whose text may have a part of the password
        raise UnsupportedSetting(
            'sasl.jaas.config cannot be read: its form is MODULE required NAME="VALUE" …;'
        ) from None


def _translate_values(config: dict[str, Any]) -> None:
    """Translate the values that librdkafka writes in another way, in place."""
    if config.get("client.dns.lookup") == "default":
        del config["client.dns.lookup"]
    if config.get("auto.offset.reset") == "none":
        config["auto.offset.reset"] = "error"
    if isinstance(strategy := config.get("partition.assignment.strategy"), str):
        config["partition.assignment.strategy"] = ",".join(
            _ASSIGNORS.get(name.rpartition(".")[2], name) for name in parts(strategy)
        )


def _translate_tokens(config: dict[str, Any], options: Mapping[str, str]) -> None:
    """Translate the settings of tokens, in place.

    :param options: of ``sasl.jaas.config``
    """
    for name, classes in _TOKEN_CLASSES.items():
        if str(config.get(name, "")).rpartition(".")[2] in classes:
            del config[name]
    for option, name in _TOKEN_OPTIONS.items():
        if option in options:
            config.setdefault(name, options[option])
    extensions = ",".join(
        f"{option.removeprefix(_EXTENSION)}={value}"
        for option, value in options.items()
        if option.startswith(_EXTENSION)
    )
    if extensions:
        config.setdefault("sasl.oauthbearer.extensions", extensions)
    url = urlsplit(str(config.get("sasl.oauthbearer.token.endpoint.url", "")))
    if url.scheme == "file":
        del config["sasl.oauthbearer.token.endpoint.url"]
        config.pop("sasl.oauthbearer.method", None)
        config["oauth_cb"] = TokenFile(unquote(url.path))
    elif url.scheme:
        config.setdefault("sasl.oauthbearer.method", "oidc")


# Files --------------------------------------------------------------------------------------------


LIBRDKAFKA = names("""
    acks allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms auto.commit.enable auto.commit.interval.ms auto.offset.reset
    batch.num.messages batch.size bootstrap.servers broker.address.family broker.address.ttl
    broker.version.fallback check.crcs client.dns.lookup client.id client.rack client.software.name
    client.software.version compression.codec compression.level compression.type
    connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms debug
    delivery.timeout.ms enable.auto.commit enable.auto.offset.store
    enable.gapless.guarantee enable.idempotence enable.metrics.push enable.partition.eof
    enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections
    enable.ssl.certificate.verification fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
    group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
    https.ca.location https.ca.pem isolation.level linger.ms log.connection.close log.queue
    log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records message.copy.max.bytes
    message.max.bytes message.send.max.retries message.timeout.ms metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metadata.request.timeout.ms offset.store.method offset.store.path offset.store.sync.interval.ms
    partition.assignment.strategy partitioner plugin.library.paths produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms
    retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
    sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse transaction.timeout.ms
    transactional.id
""")
"""The names of librdkafka 2.16, without those of callbacks."""
JAVA = names("""
    bootstrap.controllers bootstrap.resolve.timeout.ms buffer.memory
    buffer.memory.allocation.strategy compression.gzip.level compression.lz4.level
    compression.zstd.level config.providers exclude.internal.topics interceptor.classes
    internal.throw.on.fetch.stable.offset.unsupported key.deserializer key.serializer max.block.ms
    metadata.cluster.check.enable metadata.max.idle.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
    partitioner.rack.aware share.acquire.mode socket.connection.setup.timeout.max.ms
    transaction.two.phase.commit.enable value.deserializer value.serializer

    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms ssl.keymanager.algorithm
    ssl.secure.random.implementation ssl.trustmanager.algorithm
""")
"""The other names of Kafka's Java clients that have no meaning here. Those of security only say
when and with which parts of Java a connection is made.
"""
_STORES = names("""
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.type ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
""")
"""Java's names of key stores, which are translated if the store is of the type PEM."""
_SECURITY = ("ssl.", "sasl.", "security.")
_WITHOUT_EFFECT = {
    "sasl.oauthbearer.header.urlencode": {"false"},
    "ssl.enabled.protocols": {"TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2"},
    "ssl.keystore.type": {"PKCS12"},
    "ssl.protocol": {"TLS", "TLSv1.2", "TLSv1.3"},
}
"""Setting of security → its values that say what holds anyway."""
_PLACEHOLDER = re.compile(r"\$\{[^}:]+:[^}]*\}")
"""What Java's clients replace with the help of ``config.providers``."""
_NEAR = 0.85


def config_of_file(
    properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the configuration of a properties file, under librdkafka's names.

    :param overrides: settings that take precedence over the file's. Names among them that are
        unknown here stay: librdkafka refuses them
    :raises UnsupportedSetting: a name in the file is mistyped, a setting of security is not
        supported, or a value has a placeholder such as ``${env:PASSWORD}``
    """
    own = dict(overrides or {})
    config = from_java({**properties, **own})
    ignored = {
        name
        for name in config.keys() & properties.keys() - own.keys()
        if not _has_meaning(name, properties[name], properties)
    }
    for name, value in {**properties, **own}.items():
        placeholder = _PLACEHOLDER.search(value)
        if placeholder is not None and name not in ignored:
            raise UnsupportedSetting(
                f"{name} has a placeholder of config.providers, such as ${{env:NAME}}, and nothing "
                "here replaces it: write the value itself"
            )
    return {name: value for name, value in config.items() if name not in ignored}


def _has_meaning(name: str, value: str, properties: Mapping[str, str]) -> bool:
    """Return False if a setting is to be ignored.

    :param name: a name that has no translation
    :raises UnsupportedSetting: it must not be ignored
    """
    if name in LIBRDKAFKA:
        return True
    if name in JAVA or not value or value in _WITHOUT_EFFECT.get(name, ()):
        return False
    if name in _STORES:
        store = ".".join(name.split(".")[:2])
        if (
            name == "ssl.truststore.password"
            and properties.get(f"{store}.type", "").upper() == "PEM"
        ):
            return False
        raise UnsupportedSetting(
            f"{name} is for a key store of Java, which is not supported here: convert it to PEM, "
            f"and set {store}.type=PEM"
        )
    if question := meant(name, LIBRDKAFKA | _STORES | {"sasl.jaas.config"}, _NEAR):
        raise UnsupportedSetting(f"{name} is no setting of clients; {question}")
    if name.startswith(_SECURITY):
        raise UnsupportedSetting(
            f"{name} is not supported here, and ignoring it would change how connections are "
            "secured: remove it, or use a file of its own for headrace"
        )
    return False
