"""The topics that a request creates in one transaction."""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode, Refusal

from .catalog import Catalog, CatalogError, NewTopic, Topic, fold
from .topic_rules import check_new_topic_name


class Creation:
    """Topics that are planned one after the other, and then created together."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._planned: dict[str, NewTopic] = {}

    def check_name(self, name: str) -> Refusal | None:
        """Return the error for a topic of this name, None if it can be planned."""
        planned = self._planned.get(fold(name))
        twin = self._catalog.twin(name) or (None if planned is None else planned.name)
        return check_new_topic_name(name, twin)

    def plan(self, topic: NewTopic) -> None:
        """Plan a topic whose name and configs have been checked."""
        self._planned[fold(topic.name)] = topic

    def create(self) -> dict[str, Topic | Refusal]:
        """Create the planned topics, all of them or none; return the result of each by name.
        Another request may have created some of them since they were planned.
        """
        results: dict[str, Topic | Refusal] = {}
        new: list[NewTopic] = []
        for topic in self._planned.values():
            refusal = check_new_topic_name(topic.name, self._catalog.twin(topic.name))
            if refusal is None:
                new.append(topic)
            else:
                results[topic.name] = refusal
        try:
            created = self._catalog.create_topics(new) if new else []
            return results | {topic.name: topic for topic in created}
        except CatalogError as error:
            failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return results | {topic.name: failed for topic in new}
