"""Settings that promise security which this broker does not have, and the names of settings of one
listener.

A broker that ignored such a setting would be open while its configuration says that it is not. So
a value other than the default refuses the start, and a change at run time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .keys import ConfigKey, InvalidValue, config_keys

LISTENER_PREFIX = "listener.name."

_FEATURES = {
    re.compile(pattern): feature
    for pattern, feature in {
        r"ssl\.(engine\.factory\.class|provider|secure\.random\.implementation"
        r"|(key|trust)manager\.algorithm)|security\.providers": "TLS of Java",
        r"sasl\.kerberos\..+": "GSSAPI (Kerberos)",
        r"principal\.builder\.class": "principal builder",
        r"delegation\.token\.(secret|master)\.key": "delegation token",
        r"client\.quota\.callback\.class|quota\.(producer|consumer)\.default": "client quota",
        r"(create\.topic|alter\.config)\.policy\.class\.name": "policy",
    }.items()
}
"""Patterns of names, and the feature that this broker does not have, for the error text."""

_PER_LISTENER = re.compile(r"max\.connections\.per\.ip.*")
"""Settings that are served, but not for a single listener."""

_SECURITY = re.compile(r"(ssl|sasl|security|connections|authorizer|principal)\..+")
"""Settings whose misspelt names refuse the start also with the prefix of a listener."""


class ListenerKey(NamedTuple):
    """The name of a setting of one listener: ``listener.name.<listener>.[<mechanism>.]<key>``.

    :ivar mechanism: a SASL mechanism in lower case, None without one
    :ivar key: the name of a broker config
    """

    mechanism: str | None
    key: str


def listener_key(name: str) -> ListenerKey | None:
    """Return the parts of a name with the prefix of a listener; None without such a prefix, or if
    what follows is no broker config.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, _, key = name[len(LISTENER_PREFIX) :].partition(".")
    keys = config_keys("broker")
    if key in keys:
        return ListenerKey(None, key)
    mechanism, _, key = key.partition(".")
    return ListenerKey(mechanism.lower(), key) if key in keys else None


def broker_key(name: str) -> ConfigKey | None:
    """Return the declaration of a broker config, also with the prefix of a listener; None for an
    unknown name.
    """
    of_listener = listener_key(name)
    return config_keys("broker").get(name if of_listener is None else of_listener.key)


def unserved(name: str, text: str) -> str | None:
    """Return why a broker with this setting must not run, None if it may.

    The message does not have the value, which may be a secret.

    :param name: the name of a broker config, also an unknown one
    :param text: its value as given
    """
    of_listener = listener_key(name)
    key = name if of_listener is None else of_listener.key
    if of_listener is None and name.startswith(LISTENER_PREFIX):
        rest = name[len(LISTENER_PREFIX) :].partition(".")[2]
        if _SECURITY.fullmatch(rest) or _SECURITY.fullmatch(rest.partition(".")[2]):
            return f"{name} is no config of Apache Kafka. Remove it, or mend its name"
        return None
    feature = next(
        (feature for pattern, feature in _FEATURES.items() if pattern.fullmatch(key)), None
    )
    if of_listener is not None and feature is None and _PER_LISTENER.fullmatch(key):
        feature = "limit of the connections of one listener"
    if feature is None or _is_default(key, text):
        return None
    return (
        f"{name} is not served: this broker has no {feature}, and would be less protected than the "
        "setting says. Remove it, and let only clients that you trust reach the port"
    )


def _is_default(name: str, text: str) -> bool:
    key = config_keys("broker").get(name)
    try:
        return key is not None and key.parse(text) == key.parse(key.default or "")
    except InvalidValue:
        return True  # another error says so
