"""The metrics that clients have pushed, as series for the metrics page.

A series is a metric of one client instance with one set of labels. Their number is limited for each
client and for all together. The series of a client are forgotten some time after its last push.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Generator, Sequence

from headrace.broker.config.client_metrics import CLIENT_ID
from headrace.broker.limits import (
    MAX_ALL_CLIENT_SERIES,
    MAX_CLIENT_INSTANCES,
    MAX_CLIENT_LABEL_LENGTH,
    MAX_CLIENT_SERIES,
    MAX_CLIENT_SERIES_BYTES,
    MAX_CLIENT_SERIES_LABELS,
)
from headrace.broker.metrics.text import MetricsPage, labels
from headrace.uuid_text import uuid_text

from .client_instances import ClientInstance
from .otlp import Attributes, Point

_PREFIX = "org.apache.kafka."
"""All clients begin the names of their metrics so. Others could be those of the broker itself."""

_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_]")
_NEVER = 1 << 62
_CLIENT_LABELS = ("client_id", "client_instance_id")


class _Family:
    """The series with one name: their values by labels."""

    __slots__ = ("is_counter", "values")

    def __init__(self, *, is_counter: bool) -> None:
        self.is_counter = is_counter
        self.values: dict[str, float] = {}


class _Client:
    """One client instance.

    :ivar labels: the labels that all its series have, without braces
    :ivar series: the name and the labels of each of its series
    """

    __slots__ = ("expires_ms", "labels", "series")

    def __init__(self, common_labels: str) -> None:
        self.labels = common_labels
        self.series: set[tuple[str, str]] = set()
        self.expires_ms = 0


class ClientSeries:
    """The series of all clients.

    :ivar left_out: data points that have no series, because there are too many or their metric has
        another name or kind than those of clients
    """

    def __init__(self) -> None:
        self._clients: dict[uuid.UUID, _Client] = {}
        self._families: dict[str, _Family] = {}
        self._count = 0
        self._next_expiry_ms = 0
        self.left_out = 0

    def record(
        self, instance: ClientInstance, points: Sequence[Point], now_ms: int
    ) -> Generator[None, None, None]:
        """Return a generator that updates the series of a client with the points that it has
        pushed. It yields after each point.
        """
        self.expire(now_ms)
        client = self._clients.get(instance.instance_id)
        if client is None:
            if len(self._clients) >= MAX_CLIENT_INSTANCES:
                self.left_out += len(points)
                return
            client = self._clients[instance.instance_id] = _Client(_client_labels(instance))
        client.expires_ms = now_ms + instance.expiry_ms
        self._next_expiry_ms = min(self._next_expiry_ms, client.expires_ms)
        for point in points:
            if not self._update(client, point):
                self.left_out += 1
            yield

    def _update(self, client: _Client, point: Point) -> bool:
        """Update the series of a point, or add it; return False if it gets none."""
        name = _series_name(point.name)
        if name is None:
            return False
        label = f"{{{client.labels}{_point_labels(point.attributes)}}}"
        family = self._families.get(name)
        if family is not None and family.is_counter != point.is_counter:
            return False
        if family is not None and label in family.values:
            before = family.values[label] if point.is_delta else 0
            family.values[label] = before + point.value
            return True
        if (
            len(client.series) >= MAX_CLIENT_SERIES
            or self._count >= MAX_ALL_CLIENT_SERIES
            or sys.getsizeof(label) > MAX_CLIENT_SERIES_BYTES
        ):
            return False
        if family is None:
            family = self._families[name] = _Family(is_counter=point.is_counter)
        family.values[label] = point.value
        client.series.add((name, label))
        self._count += 1
        return True

    def expire(self, now_ms: int) -> None:
        """Forget the clients that have not pushed for long."""
        if now_ms < self._next_expiry_ms:
            return
        for key, client in list(self._clients.items()):
            if client.expires_ms > now_ms:
                continue
            del self._clients[key]
            self._count -= len(client.series)
            for name, label in client.series:
                values = self._families[name].values
                del values[label]
                if not values:
                    del self._families[name]
        left = (client.expires_ms for client in self._clients.values())
        self._next_expiry_ms = min(left, default=_NEVER)

    async def write(self, page: MetricsPage) -> None:
        """Write all series to the metrics page."""
        for name, family in sorted(self._families.items()):
            kind = "counter" if family.is_counter else "gauge"
            page.family(name, "Pushed by clients (KIP-714).", kind)
            for label, value in list(family.values.items()):
                page.sample(value, label)
                await page.end_slice_if_full()


def _series_name(name: str) -> str | None:
    """Return the name on the metrics page for a client's metric, None if it gets none."""
    if not name.startswith(_PREFIX):
        return None
    return _NOT_IN_NAMES.sub("_", name[:MAX_CLIENT_LABEL_LENGTH])


def _client_labels(instance: ClientInstance) -> str:
    client_id = instance.attributes.get(CLIENT_ID, "")
    text = labels(client_id=client_id, client_instance_id=uuid_text(instance.instance_id))
    return text[1:-1]


def _point_labels(attributes: Attributes) -> str:
    """Return the labels for the attributes of a point, in the order of their names."""
    named = {}
    for key, value in attributes[:MAX_CLIENT_SERIES_LABELS]:
        name = _NOT_IN_NAMES.sub("_", key[:MAX_CLIENT_LABEL_LENGTH])
        if name and name not in _CLIENT_LABELS:
            named[name if not name[0].isdigit() else f"_{name}"] = value[:MAX_CLIENT_LABEL_LENGTH]
    return "".join(f",{labels(**{name: named[name]})[1:-1]}" for name in sorted(named))
