"""A client of the share coordinator (requests 83-87), in plain values."""

from __future__ import annotations

from typing import NamedTuple

INITIALIZE, READ, WRITE, DELETE, SUMMARY = 83, 84, 85, 86, 87
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


class ShareStateClient:
    """The share state of a group in one topic. Errors come as (code, message)."""

    def __init__(self, client, topic_id, group_id):
        self.client, self.topic_id, self.group_id = client, topic_id, group_id

    def ask(self, api_key, *topics, version=None):
        """Send a request, whose ``topics`` are (topic id, partitions), each partition a dict of
        fields, and return [(topic id, its results)].
        """
        version = (1 if api_key in (WRITE, SUMMARY) else 0) if version is None else version
        asked = [
            {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics
        ]
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
        """Return (state epoch, start offset, batches) or an error."""
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
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        given = [dict(zip(names, one, strict=True)) for one in batches]
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
