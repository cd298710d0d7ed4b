"""Topics and their configs: what was acknowledged holds, what was not may or may not have
happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.protocol.errors import ErrorCode

from ..witness import Violation
from .actor import Actor

if TYPE_CHECKING:
    from .world import World

ALTER_CONFIGS, CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS = 44, 37, 19, 21, 20
TOPIC = 2
CONFIG = "max.message.bytes"


class State(NamedTuple):
    """A topic.

    :ivar topic_id: None if the answer with it was lost
    :ivar config: the value of :data:`CONFIG`
    """

    topic_id: UUID | None
    partitions: int
    config: str

    def fits(self, found: State) -> bool:
        """Return whether this may be the topic that was found."""
        return (self.topic_id in (None, found.topic_id)) and self[1:] == found[1:]


class TopicAdministrator(Actor):
    """An administrator of topics, who knows the possible states of each.

    :ivar known: the possible states of each topic; None stands for a missing one
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.known: dict[str, list[State | None]] = {"north": [None], "south": [None]}
        self._values = 100_000

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        self.check()
        rng = self.world.rng
        name = rng.choice(sorted(self.known))
        state = self.known[name][0]
        if state is None:
            return self._create(name, rng.choice((1, 2, 4)))
        dice = rng.random()
        if dice < 0.2:
            return self._delete(name, state)
        if dice < 0.4 and state.partitions < 6:
            return self._grow(name, state)
        if dice < 0.7:
            return self._configure(name, state)
        return self._delete_records(name, state)

    def check(self) -> None:
        """Compare with the catalog, which decides what happened to unanswered requests."""
        topics = self.world.machine.broker.catalog.topics
        for name, states in self.known.items():
            topic = topics.get(name)
            found = None
            if topic is not None:
                config = topic.configs.get(CONFIG, "")
                found = State(topic.topic_id, topic.partitions, config)
            possible = [
                one
                for one in states
                if (one is None and found is None)
                or (one is not None and found is not None and one.fits(found))
            ]
            if not possible:
                raise Violation(f"topic {name} is {found}, and should be {states}")
            self.known[name] = [found]

    def _change(self, name: str, after: State | None) -> Any:
        """Note what a request may do; return what to call when it has done it."""
        before = self.known[name]
        self.known[name] = [*before, after]

        def done(code: int, topic_id: UUID | None = None) -> None:
            if self.failed(code):
                return  # the catalog says whether something has happened
            now = after._replace(topic_id=topic_id) if after is not None and topic_id else after
            self.known[name] = [now]
            self.world.counts["topic changes"] += 1

        return done

    def _create(self, name: str, partitions: int) -> str:
        value = self._next_value()
        done = self._change(name, State(None, partitions, value))

        def answered(answer: Any) -> None:
            if answer is not None:
                done(int(answer.topics[0].error_code), answer.topics[0].topic_id)

        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [
                {"name": CONFIG, "value": value},
                {"name": "internal.segment.bytes", "value": self.world.segment_bytes},
            ],
        }
        self.ask(CREATE_TOPICS, 7, answered, topics=[topic], timeout=30_000, validate_only=False)
        return f"creates {name}"

    def _next_value(self) -> str:
        self._values += 1
        return str(self._values)

    def _delete(self, name: str, state: State) -> str:
        done = self._change(name, None)

        def answered(answer: Any) -> None:
            if answer is not None:
                done(int(answer.responses[0].error_code))

        topics = [{"name": None, "topic_id": state.topic_id}]
        self.ask(DELETE_TOPICS, 6, answered, topics=topics, timeout=30_000)
        return f"deletes {name}"

    def _grow(self, name: str, state: State) -> str:
        done = self._change(name, state._replace(partitions=state.partitions + 1))

        def answered(answer: Any) -> None:
            if answer is not None:
                done(int(answer.results[0].error_code))

        topic = {"name": name, "count": state.partitions + 1, "assignments": None}
        self.ask(
            CREATE_PARTITIONS, 3, answered, topics=[topic], timeout=30_000, validate_only=False
        )
        return f"grows {name}"

    def _configure(self, name: str, state: State) -> str:
        value = self._next_value()
        done = self._change(name, state._replace(config=value))

        def answered(answer: Any) -> None:
            if answer is not None:
                done(int(answer.responses[0].error_code))

        config = {"name": CONFIG, "config_operation": 0, "value": value}
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": [config]}
        self.ask(ALTER_CONFIGS, 1, answered, resources=[resource], validate_only=False)
        return f"sets {CONFIG} of {name} to {value}"

    def _delete_records(self, name: str, state: State) -> str:
        assert state.topic_id is not None
        where = state.topic_id, self.world.rng.randrange(state.partitions)
        page = self.world.book.page(where)
        offsets = sorted(page.acknowledged)
        if not offsets:
            return "has nothing to delete"
        before = self.world.rng.choice(offsets)
        page.may_start_at = max(page.may_start_at, before)

        def answered(answer: Any) -> None:
            if answer is None:
                return
            one = answer.topics[0].partitions[0]
            if not self.failed(one.error_code, ErrorCode.OFFSET_OUT_OF_RANGE):
                page.must_start_at = max(page.must_start_at, before)
                self.world.counts["records deleted"] += 1

        partition = {"partition_index": where[1], "offset": before}
        topics = [{"name": name, "partitions": [partition]}]
        self.ask(DELETE_RECORDS, 2, answered, topics=topics, timeout=30_000)
        return f"deletes the records of {name}-{where[1]} before {before}"
