"""Client telemetry of a broker: subscriptions from the catalog, instances, and their metrics."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping

from headrace.broker.catalog import Catalog
from headrace.broker.config.broker_config import Config
from headrace.broker.config.client_metrics import KIND, subscription
from headrace.broker.limits import MAX_CLIENT_SUBSCRIPTIONS
from headrace.broker.metrics.text import MetricsPage
from headrace.clock import Clock
from headrace.errors import ErrorCode
from headrace.log_lines import get_logger
from headrace.protocol.compression import BadCompression, decompressed

from .client_instances import ClientInstance, ClientInstances, Push
from .otlp import BadMetrics, decode
from .series import ClientSeries

log = get_logger("headrace.telemetry")


class Telemetry:
    """The subscriptions of clients, and the metrics that they have pushed.

    :ivar exported: pushes whose metrics were read
    :ivar failed: pushes whose metrics could not be read
    """

    def __init__(self, config: Config, catalog: Catalog, clock: Clock) -> None:
        self._config = config
        self._catalog = catalog
        self._clock = clock
        self.instances = ClientInstances()
        self.series = ClientSeries()
        self.exported = self.failed = 0
        self.refresh()

    @property
    def max_bytes(self) -> int:
        """The largest size of pushed metrics, compressed or not (``telemetry.max.bytes``)."""
        return self._config.get_int("telemetry.max.bytes")

    def refresh(self) -> None:
        """Take the subscriptions from the catalog, after a change."""
        names = self._catalog.configured(KIND)
        if len(names) > MAX_CLIENT_SUBSCRIPTIONS:
            message = "only the first %d of %d subscriptions of client metrics are used"
            log.warning(message, MAX_CLIENT_SUBSCRIPTIONS, len(names))
        self.instances.set_subscriptions(
            [
                subscription(self._catalog.configs(KIND, name))
                for name in names[:MAX_CLIENT_SUBSCRIPTIONS]
            ]
        )

    def ask(
        self, instance_id: uuid.UUID | None, attributes: Mapping[str, str], connection_id: int
    ) -> ClientInstance | ErrorCode:
        """Return an instance with its subscription, as :meth:`ClientInstances.ask`."""
        now_ms = self._clock.now_ms()
        return self.instances.ask(instance_id, attributes, connection_id, now_ms)

    def push(
        self, push: Push, attributes: Mapping[str, str], connection_id: int
    ) -> ClientInstance | ErrorCode:
        """Return the instance of a valid push, as :meth:`ClientInstances.push`."""
        now_ms = self._clock.now_ms()
        return self.instances.push(push, attributes, connection_id, now_ms, self.max_bytes)

    def export(
        self, instance: ClientInstance, codec: int, data: memoryview
    ) -> Generator[None, None, ErrorCode]:
        """Return a generator that decompresses pushed metrics and takes them into the series. It
        yields between pieces of work, and returns the error of the push.
        """
        error = ErrorCode.NONE
        try:
            whole = yield from self._decompress(codec, data)
            if whole is None:
                error = ErrorCode.TELEMETRY_TOO_LARGE
            else:
                decoded = yield from decode(memoryview(whole))
                yield from self.series.record(instance, decoded.points, self._clock.now_ms())
                self.series.left_out += decoded.left_out
        except (BadCompression, BadMetrics):
            error = ErrorCode.INVALID_RECORD
        if error:
            instance.last_error = error
            self.failed += 1
        else:
            self.exported += 1
        return error

    def _decompress(
        self, codec: int, data: memoryview
    ) -> Generator[None, None, bytes | bytearray | None]:
        """Decompress pushed metrics; None if they are larger than ``telemetry.max.bytes``."""
        whole, max_bytes = bytearray(), self.max_bytes
        for piece in decompressed(codec, data):
            if len(whole) + len(piece) > max_bytes:
                return None
            whole += piece
            yield
        return whole

    def disconnected(self, connection_id: int) -> None:
        """Forget the instance of a closed connection; its series stay for a while."""
        self.instances.disconnected(connection_id)

    async def write(self, page: MetricsPage) -> None:
        """Write the series of clients to the metrics page."""
        self.series.expire(self._clock.now_ms())
        await self.series.write(page)
