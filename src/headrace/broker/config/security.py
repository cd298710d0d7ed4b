"""Settings that promise security which this broker does not have.

A broker that ignored them would be open while its configuration says that it is not. So a value
other than the default refuses the start, and a change at run time.
"""

from __future__ import annotations

import re

from .keys import InvalidValue, config_keys

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.")
_SECURE_PROTOCOLS = frozenset(("SSL", "SASL_PLAINTEXT", "SASL_SSL"))
_PROTOCOL_MAP = "listener.security.protocol.map"

_FEATURES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), feature)
    for pattern, feature in (
        (r"(.+\.)?ssl\..+", "TLS"),
        (r"(.+\.)?sasl\..+|connections\.max\.reauth\.ms", "SASL"),
        (
            r"security\.(inter\.broker\.protocol|providers)|(advertised\.)?listeners"
            r"|listener\.security\.protocol\.map",
            "TLS and no SASL",
        ),
        (r"principal\.builder\.class", "authentication"),
        (r"delegation\.token\.(secret|master)\.key", "delegation token"),
        (r"client\.quota\.callback\.class|quota\.(producer|consumer)\.default", "client quota"),
        (r"(create\.topic|alter\.config)\.policy\.class\.name", "policy"),
        (r"max\.connection\.creation\.rate", "limit of the rate of connections"),
    )
)
"""Patterns of names, and what this broker has "no ..." of."""

_PER_LISTENER = re.compile(r"max\.connections(\.per\.ip.*)?")
"""Settings that are served, but not for a single listener."""


def unserved(name: str, text: str) -> str | None:
    """Return why a broker with this setting must not run, None if it may.

    The message does not have the value, which may be a secret.

    :param name: the name of a broker config, also an unknown one
    :param text: its value as given
    """
    plain_name = _LISTENER_PREFIX.sub("", name)
    feature = next((one for pattern, one in _FEATURES if pattern.fullmatch(plain_name)), None)
    if plain_name != name and feature is None and _PER_LISTENER.fullmatch(plain_name):
        feature = "limit of the connections of one listener"
    if feature is None or _promises_nothing(name, plain_name, text):
        return None
    return (
        f"{name} is not served: this broker has no {feature}, and would be less protected than the "
        "setting says. Remove it, and let only clients that you trust reach the port"
    )


def _promises_nothing(name: str, plain_name: str, text: str) -> bool:
    if plain_name.endswith("listeners"):
        return _SECURE_PROTOCOLS.isdisjoint(
            one.partition("://")[0].strip().upper() for one in text.split(",")
        )
    if name == _PROTOCOL_MAP:
        return not any(map(_maps_to_security, text.upper().split(",")))
    return _is_default(plain_name, text)


def _maps_to_security(entry: str) -> bool:
    """Return whether a listener of another name gets a secure protocol. Kafka's own default maps
    each protocol to itself.
    """
    listener, _, protocol = (part.strip() for part in entry.partition(":"))
    return protocol in _SECURE_PROTOCOLS and listener != protocol


def _is_default(name: str, text: str) -> bool:
    key = config_keys("broker").get(name)
    if key is None:
        return False
    try:
        value = key.parse(text)
    except InvalidValue:
        return True  # another error says so
    return (
        value == (() if key.type == "LIST" else "")
        if key.default is None
        else (value == key.parse(key.default))
    )
