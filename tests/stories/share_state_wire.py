"""The share coordinator's requests (83-87) in plain values."""

from __future__ import annotations

from typing import NamedTuple

from tests.stories.groups_wire import part

INITIALIZE, READ, WRITE, DELETE, SUMMARY = 83, 84, 85, 86, 87
TOPIC_CLASSES = {
    INITIALIZE: "InitializeStateData",
    READ: "ReadStateData",
    WRITE: "WriteStateData",
    DELETE: "DeleteStateData",
    SUMMARY: "ReadStateSummaryData",
}
NOT_HOSTED = (3, "This server does not host this topic-partition.")
NEGATIVE = (42, "The partition id cannot be a negative number.")
NO_READ = (42, "Read operation on uninitialized share partition not allowed.")
NO_WRITE = (42, "Write operation on uninitialized share partition not allowed.")
OLD_LEADER = (74, "The leader epoch in the request is older than the epoch on the broker.")
OLD_STATE = (
    124,
    "The share coordinator rejected the request because the share-group state epoch did not match.",
)
DONE = (0, None)


class Summary(NamedTuple):
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int | None


class Desk:
    """A group's share state of one topic, in plain values. Errors come as (code, message)."""

    def __init__(self, client, topic_id, group_id):
        self.client, self.topic_id, self.group_id = client, topic_id, group_id

    def ask(self, api_key, *topics, version=None):
        """``topics`` are (topic id, partitions), each partition a dict of fields; [(topic id, its
        results)].
        """
        version = (1 if api_key in (WRITE, SUMMARY) else 0) if version is None else version
        asked = tuple(
            part(
                api_key,
                version,
                TOPIC_CLASSES[api_key],
                topic_id=topic_id,
                partitions=tuple(
                    part(api_key, version, "PartitionData", **fields) for fields in partitions
                ),
            )
            for topic_id, partitions in topics
        )
        answer = self.client.ask(api_key, version, group_id=self.group_id, topics=asked)
        return [(topic.topic_id, topic.partitions) for topic in answer.results]

    def one(self, api_key, version=None, **fields):
        topic_id = fields.pop("topic_id", self.topic_id)
        ((answered_id, (result,)),) = self.ask(api_key, (topic_id, [fields]), version=version)
        assert (answered_id, result.partition) == (topic_id, fields["partition"])
        return result

    def initialize(self, state_epoch=1, start_offset=0, partition=0, **fields):
        fields |= {"partition": partition, "state_epoch": state_epoch, "start_offset": start_offset}
        return error(self.one(INITIALIZE, **fields))

    def read(self, leader_epoch=0, partition=0, **fields):
        """(state epoch, start offset, batches) or an error."""
        result = self.one(READ, partition=partition, leader_epoch=leader_epoch, **fields)
        if result.error_code:
            assert (result.state_epoch, result.start_offset, result.state_batches) == (0, 0, ())
            return error(result)
        batches = [
            (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in result.state_batches
        ]
        return result.state_epoch, result.start_offset, batches

    def write(
        self,
        *batches,
        start=-1,
        complete=0,
        state_epoch=-1,
        leader_epoch=-1,
        partition=0,
        version=1,
        **fields,
    ):
        given = tuple(
            part(
                WRITE,
                version,
                "StateBatch",
                first_offset=first,
                last_offset=last,
                delivery_state=state,
                delivery_count=count,
            )
            for first, last, state, count in batches
        )
        fields |= {"partition": partition, "state_epoch": state_epoch, "leader_epoch": leader_epoch}
        fields |= {
            "start_offset": start,
            "delivery_complete_count": complete,
            "state_batches": given,
        }
        return error(self.one(WRITE, version, **fields))

    def delete(self, partition=0, **fields):
        return error(self.one(DELETE, partition=partition, **fields))

    def summary(self, partition=0, version=1, **fields):
        result = self.one(SUMMARY, version, partition=partition, leader_epoch=0, **fields)
        if result.error_code:
            assert (result.state_epoch, result.leader_epoch, result.start_offset) == (0, 0, 0)
            return error(result)
        count = getattr(result, "delivery_complete_count", None)
        return Summary(result.state_epoch, result.leader_epoch, result.start_offset, count)


def error(result):
    return int(result.error_code), result.error_message
