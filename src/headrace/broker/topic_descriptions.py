"""The descriptions of all topics for Metadata, kept as bytes: every client asks for them.

The topics are encoded in runs. When topics change, only the runs that they are in are encoded
again, and the responses share the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from headrace.protocol.large_responses import Write

from .catalog import Catalog, Topic
from .limits import MAX_METADATA_VERSIONS

_RUN_MASK = 0xFF
"""A run begins with each topic whose id has zeros in these bits: every 256th, wherever topics are
created and deleted before it.
"""

_Run = tuple[list[Topic], bytes]


class _Version:
    """The bytes in one version of the response.

    :ivar catalog_version: the version of the catalog that they describe
    """

    def __init__(self) -> None:
        self.catalog_version = -1
        self.runs: dict[Topic, _Run] = {}
        self.encoded: list[bytes] = []


class TopicDescriptions:
    """The encoded descriptions of all topics of a catalog.

    :param describe: returns the message that describes a topic
    """

    def __init__(self, catalog: Catalog, describe: Callable[[Topic], Any]) -> None:
        self._catalog = catalog
        self._describe = describe
        self._versions: dict[Write, _Version] = {}

    def all(self) -> AllTopics:
        """Return all present topics as an array of a response."""
        return AllTopics(self, self._catalog)

    def encoded(
        self, topics: Iterable[Topic], catalog_version: int, write: Write
    ) -> Generator[None, None, list[bytes]]:
        """Return the bytes of the topics that a version of the catalog had; yield between pieces of
        work.

        :param write: writes the message of a topic in the version of the response
        """
        version = self._versions.pop(write, None) or _Version()
        self._versions[write] = version  # the last one is the one used last
        if len(self._versions) > MAX_METADATA_VERSIONS:
            del self._versions[next(iter(self._versions))]
        if version.catalog_version == catalog_version:
            return version.encoded
        runs: dict[Topic, _Run] = {}
        known = version.runs
        for run in _runs(topics):
            kept = known.get(run[0])
            if kept is None or kept[0] != run:
                parts: list[Any] = []
                for topic in run:
                    write(parts.append, self._describe(topic))
                    yield
                kept = run, b"".join(parts)
            runs[run[0]] = kept
            yield
        encoded = [data for _, data in runs.values()]
        if catalog_version >= version.catalog_version:  # else another request was quicker
            version.runs, version.encoded = runs, encoded
            version.catalog_version = catalog_version
        return encoded


def _runs(topics: Iterable[Topic]) -> Iterable[list[Topic]]:
    run: list[Topic] = []
    for topic in topics:
        if run and not topic.topic_id.int & _RUN_MASK:
            yield run
            run = []
        run.append(topic)
    if run:
        yield run


class AllTopics:
    """All topics at one moment; see :class:`~headrace.protocol.large_responses.EncodedArray`."""

    is_encoded = True

    def __init__(self, descriptions: TopicDescriptions, catalog: Catalog) -> None:
        self._descriptions = descriptions
        self._topics = list(catalog.topics.values())
        self._version = catalog.version

    def __len__(self) -> int:
        return len(self._topics)

    def put(self, put: Callable[[Any], object], write: Write) -> Generator[None, None, None]:
        """Put the bytes of all topics; yield between pieces of work."""
        encoded = yield from self._descriptions.encoded(self._topics, self._version, write)
        for data in encoded:
            put(data)
