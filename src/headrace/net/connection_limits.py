"""The limits of connections: their number, that of one address, and the rate of new ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.topics.settings import BrokerValue

MAX_CONNECTIONS = "max.connections"
RATE = "max.connection.creation.rate"
NO_LIMIT = 2**31 - 1
"""The value of these configs that stands for no limit, the default."""

PER_IP = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"

_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")


def parse_overrides(text: str) -> Mapping[str, int]:
    """Return the maximum for each address or host name of ``max.connections.per.ip.overrides``.

    :raises ValueError: an entry is not ``ADDRESS:NUMBER``
    """
    overrides = {}
    for entry in text.split(",") if text.strip() else ():
        host, colon, number = entry.rpartition(":")
        if not colon:
            raise ValueError(entry)
        overrides[host.strip()] = int(number)
    return overrides


def check_connection_limits(broker: BrokerValue) -> str | None:
    """Return the error for the limits of a broker, None if they are valid."""
    text = str(broker(OVERRIDES) or "")
    try:
        overrides = parse_overrides(text)
    except ValueError:
        return f"Invalid value {text} for configuration {OVERRIDES}: expected ADDRESS:NUMBER,..."
    if broker(PER_IP) == 0 and not overrides:
        return f"{PER_IP} can be set to zero only if {OVERRIDES} property is set."
    invalid = [host for host in overrides if not _HOST.fullmatch(host)]
    return f"{OVERRIDES} contains invalid addresses : {','.join(invalid)}" if invalid else None
