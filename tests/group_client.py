"""A client of groups, in any version: classic groups, committed offsets and share groups."""

from __future__ import annotations

import uuid

from tests.wire_client import Connection

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
SHARE_HEARTBEAT, SHARE_DESCRIBE = 76, 77
SHARE_OFFSETS, ALTER_SHARE_OFFSETS, DELETE_SHARE_OFFSETS = 90, 91, 92
MEMBER_ID_REQUIRED = 79


class GroupClient:
    """A connection, and requests about groups on it."""

    def __init__(self, bootstrap_servers):
        self.connection = Connection(bootstrap_servers, client_id="story")
        self.ask = self.connection.ask
        self._joining = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def create_topic(self, name, partitions=3):
        """Create a topic and return its id."""
        return self.connection.create_topic(name, partitions)

    def delete_topic(self, name):
        topic = {"name": name}
        (answer,) = self.ask(20, 6, topics=[topic], timeout=5000).responses
        assert answer.error_code == 0

    # --- offsets ---

    def commit(
        self,
        version,
        group_id,
        topic,
        offsets,
        *,
        member_id="",
        generation_id=-1,
        retention_ms=-1,
        **fields,
    ):
        """Commit in one topic, given by name or id, and return the error codes by partition."""
        partitions = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": 4,
                "committed_metadata": fields.get("metadata", f"at {offset}"),
            }
            for index, offset in offsets.items()
        ]
        answer = self.ask(
            OFFSET_COMMIT,
            version,
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            retention_time=retention_ms,
            topics=[{_reference(topic): topic, "partitions": partitions}],
        )
        (answered,) = answer.topics
        return {one.partition_index: int(one.error_code) for one in answered.partitions}

    def fetch(self, version, group_id, topics):
        """Return a group's offsets as {topic: {partition: (offset, metadata, error)}}.

        :param topics: topic → partitions, or None for all that the group has
        """
        asked = topics
        if topics is not None:
            asked = [
                {_reference(topic): topic, "partition_indexes": indexes}
                for topic, indexes in topics.items()
            ]
        group = {"group_id": group_id, "topics": asked}
        answer = self.ask(OFFSET_FETCH, version, **group, groups=[group])
        if version >= 8:
            (answer,) = answer.groups
        assert getattr(answer, "error_code", 0) == 0
        return {
            topic.topic_id if version >= 10 else topic.name: {
                one.partition_index: (one.committed_offset, one.metadata, int(one.error_code))
                for one in topic.partitions
            }
            for topic in answer.topics
        }

    # --- classic groups ---

    def send_join(
        self,
        version,
        group_id,
        member_id="",
        *,
        protocols=("range",),
        protocol_type="consumer",
        **fields,
    ):
        """Send JoinGroup without waiting; `joined` returns the answer."""
        self._joining = self.connection.send_message(
            JOIN,
            version,
            group_id=group_id,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": name.encode()} for name in protocols],
            session_timeout=10_000,
            rebalance_timeout=20_000,
            **fields,
        )

    def joined(self):
        """Return the answer to the JoinGroup that was sent last."""
        return self.connection.receive_message(self._joining)

    def join(self, version, group_id, member_id="", **fields):
        """Join, again with the member id where the coordinator requires one."""
        self.send_join(version, group_id, member_id, **fields)
        answer = self.joined()
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.send_join(version, group_id, answer.member_id, **fields)
            answer = self.joined()
        return answer

    def sync(self, version, group_id, member_id, generation_id, assignments=(), **fields):
        fields = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        return self.ask(
            SYNC,
            version,
            group_id=group_id,
            member_id=member_id,
            generation_id=generation_id,
            assignments=[
                {"member_id": member, "assignment": assignment}
                for member, assignment in assignments
            ],
            **fields,
        )

    def heartbeat(self, version, group_id, member_id, generation_id):
        answer = self.ask(
            HEARTBEAT, version, group_id=group_id, member_id=member_id, generation_id=generation_id
        )
        return int(answer.error_code)

    def leave(self, version, group_id, *member_ids):
        """Leave, and return the error of the whole and those of the members."""
        members = [{"member_id": one} for one in member_ids]
        answer = self.ask(
            LEAVE, version, group_id=group_id, member_id=member_ids[0], members=members
        )
        return int(answer.error_code), [
            int(one.error_code) for one in getattr(answer, "members", ())
        ]

    def listed(self, states=(), types=()):
        answer = self.ask(LIST, 5, states_filter=states, types_filter=types)
        return {
            one.group_id: (one.protocol_type, one.group_state, one.group_type)
            for one in answer.groups
        }

    def described(self, version, group_id):
        (group,) = self.ask(DESCRIBE, version, groups=[group_id]).groups
        return group

    def delete(self, *group_ids, version=2):
        answer = self.ask(DELETE, version, groups_names=group_ids)
        return {one.group_id: int(one.error_code) for one in answer.results}

    # --- share groups ---

    def beat(self, group_id, member_id, epoch, names=None):
        """Send ShareGroupHeartbeat and return its response."""
        return self.ask(
            SHARE_HEARTBEAT,
            1,
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=names,
        )

    def join_share(self, group_id, member_id, *names):
        """Join, send heartbeats until there are partitions, and return (epoch, {topic id:
        partitions}).
        """
        answer = self.beat(group_id, member_id, 0, names)
        while not answer.assignment or not answer.assignment.topic_partitions:
            assert answer.error_code == 0, answer
            answer = self.beat(group_id, member_id, answer.member_epoch)
        return answer.member_epoch, {
            one.topic_id: one.partitions for one in answer.assignment.topic_partitions
        }

    def share_described(self, group_id):
        (group,) = self.ask(SHARE_DESCRIBE, 1, group_ids=[group_id]).groups
        return group

    def share_offsets(self, group_id, topics=None, version=1):
        """Return {topic: {partition: (start offset, lag)}}; lag None where the version has none."""
        asked = topics and [
            {"topic_name": name, "partitions": indexes} for name, indexes in topics.items()
        ]
        group = {"group_id": group_id, "topics": asked}
        (answer,) = self.ask(SHARE_OFFSETS, version, groups=[group]).groups
        assert answer.error_code == 0
        for topic in answer.topics:
            assert not any(one.error_code for one in topic.partitions)
        return {
            topic.topic_name: {
                one.partition_index: (one.start_offset, getattr(one, "lag", None))
                for one in topic.partitions
            }
            for topic in answer.topics
        }

    def alter_share_offsets(self, group_id, *topics):
        """Alter start offsets, given as (topic name, {partition: start offset}), and return the
        group's error, or {topic: {partition: (error, message)}}.
        """
        asked = [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "start_offset": offset}
                    for index, offset in offsets.items()
                ],
            }
            for name, offsets in topics
        ]
        answer = self.ask(ALTER_SHARE_OFFSETS, 0, group_id=group_id, topics=asked)
        if answer.error_code:
            assert not answer.responses
            return int(answer.error_code), answer.error_message
        return {
            topic.topic_name: {
                one.partition_index: (one.error_code, one.error_message) for one in topic.partitions
            }
            for topic in answer.responses
        }

    def delete_share_offsets(self, group_id, *names):
        """Delete offsets, and return the group's error, or {topic: (topic id, error, message)}."""
        asked = [{"topic_name": name} for name in names]
        answer = self.ask(DELETE_SHARE_OFFSETS, 0, group_id=group_id, topics=asked)
        if answer.error_code:
            assert not answer.responses
            return int(answer.error_code), answer.error_message
        return {
            one.topic_name: (one.topic_id, int(one.error_code), one.error_message)
            for one in answer.responses
        }


def _reference(topic):
    """Return the field that refers to a topic."""
    return "topic_id" if isinstance(topic, uuid.UUID) else "name"
