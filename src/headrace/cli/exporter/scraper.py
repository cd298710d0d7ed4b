"""Scrapes of a cluster. Each takes one snapshot, with a limit of time and of requests."""

from __future__ import annotations

import asyncio
import gc
import time

from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.client.lag.model import LagQuery
from headrace.client.lag.watch import LagWatch
from headrace.log_lines import LimitedLog, get_logger

from .families import ScrapedLags

log = LimitedLog(get_logger("headrace.exporter"))

_PROBLEMS_LOGGED = 5


class Scraper:
    """The source of the pages of metrics.

    :param settings: their timeout of a request is the limit of one scrape, too
    :param query: the groups and topics
    :param by_partition: add samples of each partition
    :param window_s: the time over which rates are means
    """

    def __init__(
        self,
        settings: ClientConfig,
        query: LagQuery,
        *,
        by_partition: bool,
        window_s: float,
    ) -> None:
        self._cluster = settings.cluster()
        self._watch = LagWatch(self._cluster, query, window_s)
        self._by_partition = by_partition
        self._timeout_ms = settings.request_timeout_ms

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def page(self) -> bytes:
        """Scrape the cluster, and return the page; only the exporter's metrics if that fails."""
        started_s = time.monotonic()
        page = ScrapedLags()
        problems: list[str] = []
        up = False
        # A snapshot creates many objects and no cycles: searching for cycles would take a third of
        # its time.
        gc.disable()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                each_part = page.add_partitions if self._by_partition else None
                seen = await self._watch.snapshot(each_part)
                problems += seen.warnings
                page.finish(seen.groups, self._watch.rates.produced())
            up = True
        except TimeoutError:
            problems.append(f"the cluster did not answer within {self._timeout_ms} ms")
        except ClientError as error:
            problems.append(str(error))
        finally:
            gc.enable()
        if not up:
            page = ScrapedLags()
            await self._cluster.close()  # a request that timed out would delay the next scrape
        for problem in problems[:_PROBLEMS_LOGGED]:
            log.warning(problem, "%s", problem)
        if len(problems) > _PROBLEMS_LOGGED:
            log.warning("", "and %d more problems", len(problems) - _PROBLEMS_LOGGED)
        page.about(up=up, scrape_s=time.monotonic() - started_s, problems=len(problems))
        return page.page()
