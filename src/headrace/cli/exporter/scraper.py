"""Scrapes of a cluster. Each takes one snapshot, with a limit of time and of requests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence

from headrace.client.errors import ClientError
from headrace.client.lag.rates import LagRates
from headrace.client.lag.record_times import RepeatedTimes
from headrace.client.lag.rows import LagQuery
from headrace.client.lag.snapshot import lag_snapshot, wanted_groups
from headrace.client.settings import Settings
from headrace.log_lines import LimitedLog, get_logger

from .families import ScrapedLags

log = LimitedLog(get_logger("headrace.exporter"))

MAX_FETCHES = 100
"""The limit of requests to one broker for the timestamps of records, in one scrape. Positions
beyond it have no age until a later scrape.
"""
TIMES_KEPT_MS = 60_000
"""The time for which the age of a record needs no new request, if the position has not moved."""
_PROBLEMS_LOGGED = 5


class Scraper:
    """Makes the pages of metrics.

    :param query: the groups and topics
    :param by_partition: make samples for each partition, too
    :param timeout_ms: the limit of one scrape
    """

    def __init__(
        self,
        settings: Settings,
        query: LagQuery,
        *,
        by_partition: bool,
        timeout_ms: int,
        window_ms: int,
    ) -> None:
        self._cluster = settings.cluster()
        self._query = query
        self._by_partition = by_partition
        self._timeout_ms = timeout_ms
        self._rates = LagRates(window_ms)
        self._times = RepeatedTimes(MAX_FETCHES, TIMES_KEPT_MS)

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def page(self) -> bytes:
        """Scrape the cluster. If it does not answer, the page has only the metrics that say so."""
        started_s = time.monotonic()
        page = ScrapedLags(by_partition=self._by_partition)
        problems: list[str] = []
        up = False
        # A snapshot makes no cycles, but so many objects that looking for cycles takes a third of
        # its time.
        gc.disable()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                problems += await self._fill(page)
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

    async def _fill(self, page: ScrapedLags) -> Sequence[str]:
        """Take a snapshot.

        :returns: its warnings
        :raises ClientError: the cluster cannot be reached
        """
        query, rates = self._query, self._rates
        groups, warnings = await wanted_groups(self._cluster, query)
        now_ms = time.time_ns() // 1_000_000
        rates.begin(time.monotonic_ns() // 1_000_000)
        async for part in lag_snapshot(self._cluster, groups, query, now_ms, self._times):
            page.add(part.rows)
            rates.add(part.rows)
            warnings += part.warnings
        rates.end()
        page.finish(rates)
        return warnings
