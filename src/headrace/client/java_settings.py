"""Translation of settings of Kafka's Java clients into librdkafka's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.security import jaas

from .tokens import TokenFile

_RENAMED = {
    "default.api.timeout.ms": "socket.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Java's name → librdkafka's."""
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""Java's class → the name of the assignor, which librdkafka takes."""
_PEM: dict[str, dict[str, tuple[str, ...]]] = {
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
"""Store → Java's names of its PEM settings (KIP-651) → librdkafka's names."""
_TOKEN_CLASSES: dict[str, tuple[str, ...]] = {
    "sasl.login.callback.handler.class": (
        "OAuthBearerLoginCallbackHandler",
        "OAuthBearerUnsecuredLoginCallbackHandler",
    ),
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
_UNSECURED = "unsecuredLogin"


def from_java(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with librdkafka's names."""
    translated = dict(config)
    if translated.get("ssl.endpoint.identification.algorithm") == "":
        translated["ssl.endpoint.identification.algorithm"] = "none"
    login = str(translated.pop("sasl.jaas.config", ""))
    for name in ("username", "password"):
        found = re.search(rf"\b{name}\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))", login)
        if found is not None:
            translated.setdefault(f"sasl.{name}", next(filter(None, found.groups()), ""))
    for name, translation in _RENAMED.items():
        if name in translated:
            value = translated.pop(name)
            if str(value) != "-1":  # Java's word for the system's default
                translated.setdefault(translation, value)
    _translate_values(translated)
    for store, names in _PEM.items():
        if str(translated.get(f"ssl.{store}.type", "")).upper() == "PEM":
            del translated[f"ssl.{store}.type"]
            for name in names.keys() & translated.keys():
                translated |= dict.fromkeys(names[name], translated.pop(name))
    mechanism = translated.get("sasl.mechanism") or translated.get("sasl.mechanisms")
    if str(mechanism).upper() == "OAUTHBEARER":
        _translate_tokens(translated, login)
    return translated


def _translate_values(config: dict[str, Any]) -> None:
    """Translate the values that librdkafka writes in another way, in place."""
    if config.get("client.dns.lookup") == "default":
        del config["client.dns.lookup"]
    if config.get("auto.offset.reset") == "none":
        config["auto.offset.reset"] = "error"
    if isinstance(strategy := config.get("partition.assignment.strategy"), str):
        names = (name.strip() for name in strategy.split(","))
        config["partition.assignment.strategy"] = ",".join(
            _ASSIGNORS.get(name.rpartition(".")[2], name) for name in names
        )


def _translate_tokens(config: dict[str, Any], login: str) -> None:
    """Translate the settings of tokens, in place.

    :param login: ``sasl.jaas.config``
    """
    for name, classes in _TOKEN_CLASSES.items():
        if str(config.get(name, "")).rpartition(".")[2] in classes:
            del config[name]
    options = _options(login)
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
    elif any(option.startswith(_UNSECURED) for option in options):
        config.setdefault("enable.sasl.oauthbearer.unsecure.jwt", "true")
        config.setdefault("sasl.oauthbearer.config", _unsecured(options))


def _options(login: str) -> Mapping[str, str]:
    try:
        return jaas.parse(login).options
    except jaas.InvalidJaas:
        return {}


def _unsecured(options: Mapping[str, str]) -> str:
    """Return ``sasl.oauthbearer.config`` of librdkafka for the options of Kafka's
    ``OAuthBearerUnsecuredLoginCallbackHandler``.
    """
    claim = options.get(f"{_UNSECURED}PrincipalClaimName", "sub")
    scope_claim = options.get(f"{_UNSECURED}ScopeClaimName", "scope")
    words = {
        "principalClaimName": claim,
        "principal": options.get(f"{_UNSECURED}StringClaim_{claim}", ""),
        "scopeClaimName": scope_claim,
        "scope": options.get(f"{_UNSECURED}StringClaim_{scope_claim}", ""),
        "lifeSeconds": options.get(f"{_UNSECURED}LifetimeSeconds", "3600"),
    }
    return " ".join(f"{name}={value}" for name, value in words.items() if value)
