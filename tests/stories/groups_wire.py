"""A client that speaks any version of any API, one request at a time, for the stories of groups."""

from __future__ import annotations

import importlib
import io
import itertools
import socket
import struct
import uuid
from datetime import timedelta
from functools import cache

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tests.support import receive_exactly

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = (
    8,
    9,
    10,
    11,
    12,
    13,
    14,
)
DESCRIBE, LIST, CREATE_TOPICS, DELETE_TOPICS, DELETE, METADATA = 15, 16, 19, 20, 42, 3
SHARE_HEARTBEAT, SHARE_DESCRIBE, SHARE_OFFSETS, ALTER_SHARE_OFFSETS, DELETE_SHARE_OFFSETS = (
    76,
    77,
    90,
    91,
    92,
)


@cache
def schema(api_key, version):
    request = load_request_schema(api_key, version)
    return request, importlib.import_module(request.__module__)


def part(api_key, version, name, /, **fields):
    """A nested part of a request; fields that the version does not have are left out."""
    cls = getattr(schema(api_key, version)[1], name)
    return cls(**{key: value for key, value in fields.items() if key in cls.__dataclass_fields__})


class Client:
    """A connection to a broker."""

    def __init__(self, bootstrap_servers, client_id="story"):
        host, port = bootstrap_servers.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.client_id = client_id.encode()
        self.correlation_ids = itertools.count()
        self.asked = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, api_key, version, **fields):
        """Send a request without waiting for its answer."""
        cls, _ = schema(api_key, version)
        request = cls(
            **{key: value for key, value in fields.items() if key in cls.__dataclass_fields__}
        )
        body = io.BytesIO()
        body.write(
            struct.pack(">hhih", api_key, version, next(self.correlation_ids), len(self.client_id))
        )
        body.write(self.client_id)
        if cls.__header_schema__.__version__ >= 2:
            body.write(b"\0")
        entity_writer(cls)(body, request)
        self.socket.sendall(struct.pack(">i", body.tell()) + body.getvalue())
        self.asked.append((api_key, version))

    def receive(self):
        """The answer to the oldest request that is not answered yet."""
        cls = load_response_schema(*self.asked.pop(0))
        (size,) = struct.unpack(">i", receive_exactly(self.socket, 4))
        response, _ = entity_reader(cls)(
            receive_exactly(self.socket, size), 5 if cls.__header_schema__.__version__ >= 1 else 4
        )
        return response

    def ask(self, api_key, version, **fields):
        self.send(api_key, version, **fields)
        return self.receive()

    # --- topics ---

    def create_topic(self, name, partitions=3):
        topic = part(
            CREATE_TOPICS,
            7,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        answer = self.ask(CREATE_TOPICS, 7, topics=(topic,), timeout=timedelta(seconds=5))
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0].topic_id

    def delete_topic(self, name):
        topic = part(DELETE_TOPICS, 6, "DeleteTopicState", name=name, topic_id=None)
        assert (
            self.ask(DELETE_TOPICS, 6, topics=(topic,), timeout=timedelta(seconds=5))
            .responses[0]
            .error_code
            == 0
        )

    # --- offsets ---

    def commit(
        self, version, group_id, topic, offsets, *, member_id="", generation_id=-1, **fields
    ):
        """Commit in one topic, named or by id; the error codes by partition."""
        retention = timedelta(milliseconds=fields.pop("retention_ms", -1))
        partitions = tuple(
            part(
                OFFSET_COMMIT,
                version,
                "OffsetCommitRequestPartition",
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=4,
                committed_metadata=fields.get("metadata", f"at {offset}"),
            )
            for index, offset in offsets.items()
        )
        asked = part(
            OFFSET_COMMIT,
            version,
            "OffsetCommitRequestTopic",
            partitions=partitions,
            **({"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}),
        )
        answer = self.ask(
            OFFSET_COMMIT,
            version,
            group_id=group_id,
            member_id=member_id,
            topics=(asked,),
            generation_id_or_member_epoch=generation_id,
            retention_time=retention,
        )
        (answered,) = answer.topics
        return {one.partition_index: int(one.error_code) for one in answered.partitions}

    def fetch(self, version, group_id, topics):
        """Fetch a group's offsets: {topic: {partition: (offset, metadata, error)}}. ``topics`` None
        asks for all.
        """
        field = "topic_id" if version >= 10 else "name"
        holder = "OffsetFetchRequestGroup" if version >= 8 else None
        topic_class = "OffsetFetchRequestTopics" if version >= 8 else "OffsetFetchRequestTopic"
        asked = topics and tuple(
            part(
                OFFSET_FETCH,
                version,
                topic_class,
                partition_indexes=tuple(indexes),
                **{field: topic},
            )
            for topic, indexes in topics.items()
        )
        if topics == {}:
            asked = ()
        if holder is None:
            answer = self.ask(OFFSET_FETCH, version, group_id=group_id, topics=asked)
        else:
            group = part(OFFSET_FETCH, version, holder, group_id=group_id, topics=asked)
            (answer,) = self.ask(OFFSET_FETCH, version, groups=(group,)).groups
        assert getattr(answer, "error_code", 0) == 0
        return {
            getattr(topic, field): {
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
        asked = tuple(
            part(JOIN, version, "JoinGroupRequestProtocol", name=name, metadata=name.encode())
            for name in protocols
        )
        self.send(
            JOIN,
            version,
            group_id=group_id,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=asked,
            session_timeout=timedelta(seconds=10),
            rebalance_timeout=timedelta(seconds=20),
            **fields,
        )

    def join(self, version, group_id, member_id="", **fields):
        """Join, coming back with the member id where that is asked for."""
        self.send_join(version, group_id, member_id, **fields)
        answer = self.receive()
        if answer.error_code == 79:
            self.send_join(version, group_id, answer.member_id, **fields)
            answer = self.receive()
        return answer

    def sync(self, version, group_id, member_id, generation_id, assignments=(), **fields):
        fields = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        given = tuple(
            part(
                SYNC, version, "SyncGroupRequestAssignment", member_id=member, assignment=assignment
            )
            for member, assignment in assignments
        )
        return self.ask(
            SYNC,
            version,
            group_id=group_id,
            member_id=member_id,
            generation_id=generation_id,
            assignments=given,
            **fields,
        )

    def heartbeat(self, version, group_id, member_id, generation_id):
        answer = self.ask(
            HEARTBEAT, version, group_id=group_id, member_id=member_id, generation_id=generation_id
        )
        return int(answer.error_code)

    def leave(self, version, group_id, *member_ids):
        """Leave; the error of the whole and those of the members."""
        if version < 3:
            return int(
                self.ask(LEAVE, version, group_id=group_id, member_id=member_ids[0]).error_code
            ), []
        members = tuple(part(LEAVE, version, "MemberIdentity", member_id=one) for one in member_ids)
        answer = self.ask(LEAVE, version, group_id=group_id, members=members)
        return int(answer.error_code), [int(one.error_code) for one in answer.members]

    def listed(self, states=(), types=()):
        answer = self.ask(LIST, 5, states_filter=states, types_filter=types)
        return {
            one.group_id: (one.protocol_type, one.group_state, one.group_type)
            for one in answer.groups
        }

    def described(self, version, group_id):
        (group,) = self.ask(
            DESCRIBE, version, groups=(group_id,), include_authorized_operations=False
        ).groups
        return group

    def delete(self, *group_ids, version=2):
        answer = self.ask(DELETE, version, groups_names=group_ids)
        return {one.group_id: int(one.error_code) for one in answer.results}

    # --- share groups ---

    def beat(self, group_id, member_id, epoch, names=None):
        return self.ask(
            SHARE_HEARTBEAT,
            1,
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=names,
        )

    def join_share(self, group_id, member_id, *names):
        """Join and heartbeat until there are partitions; (epoch, {topic id: partitions})."""
        answer = self.beat(group_id, member_id, 0, names)
        while not answer.assignment or not answer.assignment.topic_partitions:
            assert answer.error_code == 0, answer
            answer = self.beat(group_id, member_id, answer.member_epoch)
        return answer.member_epoch, {
            one.topic_id: one.partitions for one in answer.assignment.topic_partitions
        }

    def share_described(self, group_id):
        (group,) = self.ask(
            SHARE_DESCRIBE, 1, group_ids=(group_id,), include_authorized_operations=False
        ).groups
        return group

    def share_offsets(self, group_id, topics=None, version=1):
        """{topic: {partition: (start offset, lag)}}; lag None where the version has none."""
        asked = topics and tuple(
            part(
                SHARE_OFFSETS,
                version,
                "DescribeShareGroupOffsetsRequestTopic",
                topic_name=name,
                partitions=indexes,
            )
            for name, indexes in topics.items()
        )
        group = part(
            SHARE_OFFSETS,
            version,
            "DescribeShareGroupOffsetsRequestGroup",
            group_id=group_id,
            topics=asked,
        )
        (answer,) = self.ask(SHARE_OFFSETS, version, groups=(group,)).groups
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
        """Alter, given (topic name, {partition: start offset}) pairs; the group's error, or {topic:
        {partition: …}}.
        """
        asked = tuple(
            part(
                ALTER_SHARE_OFFSETS,
                0,
                "AlterShareGroupOffsetsRequestTopic",
                topic_name=name,
                partitions=tuple(
                    part(
                        ALTER_SHARE_OFFSETS,
                        0,
                        "AlterShareGroupOffsetsRequestPartition",
                        partition_index=index,
                        start_offset=offset,
                    )
                    for index, offset in offsets.items()
                ),
            )
            for name, offsets in topics
        )
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
        """Delete; the group's error, or {topic: (topic id, error, message)}."""
        asked = tuple(
            part(DELETE_SHARE_OFFSETS, 0, "DeleteShareGroupOffsetsRequestTopic", topic_name=n)
            for n in names
        )
        answer = self.ask(DELETE_SHARE_OFFSETS, 0, group_id=group_id, topics=asked)
        if answer.error_code:
            assert not answer.responses
            return int(answer.error_code), answer.error_message
        return {
            one.topic_name: (one.topic_id, int(one.error_code), one.error_message)
            for one in answer.responses
        }
