"""The state behind all pages, the requests for views of it, and threads for what takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig

from .access import Access
from .errors import NotSeen
from .observation import NOTHING_SEEN, Observation
from .observer import Observer
from .plans import Plans, Redrives
from .requests import url

_FIRST_OBSERVATION_S = 0.25
"""The time that a view waits for the first observation."""
MAX_READS = 4
"""Pages of records that are read and written at a time; others wait for them."""


class Site:
    """The state behind all pages.

    :param config: of the connections to the cluster
    :param producer_config: librdkafka's configuration, for records to produce
    """

    def __init__(
        self,
        config: ClientConfig,
        observer: Observer,
        access: Access,
        producer_config: Mapping[str, str],
    ) -> None:
        self.access = access
        self.observer = observer
        self.cluster = config.cluster()
        self.producer_config = producer_config
        self.plans = Plans()
        self.redrives = Redrives()


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a view.

    :param path: of the request
    :param query: its parameters
    :param is_part: it wants only what changes with time
    """

    site: Site
    path: str
    query: Mapping[str, str]
    is_part: bool = False

    @property
    def cluster(self) -> Cluster:
        """The connections to the cluster."""
        return self.site.cluster

    async def seen(self) -> Observation:
        """Return the newest observation of the cluster; wait a moment for the first one.

        :raises NotSeen: there is none
        """
        observer = self.site.observer
        observer.watch()
        if not observer.tried.is_set():
            await in_thread(observer.tried.wait, _FIRST_OBSERVATION_S)
        if observer.observation is None:
            raise NotSeen(observer.problem or "the cluster was not seen yet: try again in a moment")
        return observer.observation

    async def seen_if_any(self) -> Observation:
        """Return the newest observation of the cluster, or an empty one."""
        try:
            return await self.seen()
        except NotSeen:
            return NOTHING_SEEN

    def link(self, **changes: object) -> str:
        """Return the address of this view with other parameters."""
        return url(self.path, **{**self.query, **changes})


T = TypeVar("T")

_THREADS = ThreadPoolExecutor(MAX_READS, "records")
"""Few threads, because each keeps some of the memory that it has used."""


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return what a function returns that takes long."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *arguments)
