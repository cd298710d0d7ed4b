"""Names of configs that Apache Kafka 4 does not have: of older versions, and of products around
it.

A file with them says what it is, so none of them is a misspelt name.
"""

from __future__ import annotations

import re

_WITHOUT_EFFECT = {
    "of Apache Kafka before 4.0": re.compile(
        r"zookeeper\..+|inter\.broker\.protocol\.version|password\.encoder\..+"
        r"|log\.message\.(format\.version|downconversion\.enable)"
        r"|broker\.id\.generation\.enable|reserved\.broker\.max\.id"
        r"|control\.plane\.listener\.name|auto\.include\.jmx\.reporter"
        r"|offsets\.commit\.required\.acks"
        r"|group\.coordinator\.new\.enable|eligible\.leader\.replicas\.enable"
    ),
    "of Confluent Server": re.compile(r"confluent\..+"),
    "of Cruise Control": re.compile(r"cruise\.control\..+"),
}

REPLACED = {
    "port": "set listeners",
    "host.name": "set listeners",
    "advertised.port": "set advertised.listeners",
    "advertised.host.name": "set advertised.listeners",
    "log.message.timestamp.difference.max.ms": "set log.message.timestamp.before.max.ms and "
    "log.message.timestamp.after.max.ms",
}
"""Names of older versions, and what to set instead."""


def origin(name: str) -> str | None:
    """Return where a name is from that has no effect in Apache Kafka 4; None for any other."""
    return next(
        (origin for origin, names in _WITHOUT_EFFECT.items() if names.fullmatch(name)), None
    )
