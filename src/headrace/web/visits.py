"""The requests for views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from headrace.client.cluster import Cluster

from .errors import NotSeen
from .observation import Courses, Observation
from .observer import Observer
from .plans import Plans
from .reads import in_thread
from .requests import url
from .schemas import About

PageNumber = Annotated[int, About("the page, from 1", least=1)]

_FIRST_OBSERVATION_S = 0.25
"""The time that a view waits for the first observation."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a view.

    :param failed_logins: wrong passwords and tokens since the start of the page
    :param is_part: it wants only what changes with time
    :param path: of the request
    :param query: its parameters
    """

    cluster: Cluster
    observer: Observer
    courses: Courses
    plans: Plans
    failed_logins: int
    is_part: bool
    path: str
    query: Mapping[str, str]

    async def seen(self) -> Observation:
        """Return the newest observation of the cluster; wait a moment for the first one.

        :raises NotSeen: there is none
        """
        self.observer.watch()
        if not self.observer.tried.is_set():
            await in_thread(self.observer.tried.wait, _FIRST_OBSERVATION_S)
        if self.observer.observation is None:
            problem = self.observer.problem
            raise NotSeen(problem or "the cluster was not seen yet: try again in a moment")
        return self.observer.observation

    async def seen_if_any(self) -> Observation | None:
        """Return the newest observation of the cluster, or None."""
        try:
            return await self.seen()
        except NotSeen:
            return None

    def link(self, **changes: object) -> str:
        """Return the address of this view with other parameters."""
        return url(self.path, **{**self.query, **changes})
