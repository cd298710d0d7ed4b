"""The matrix of permissions: a request of every API, and the permissions that it needs.

From each row cases are made (:func:`cases`): a client without any ACL, with exactly the right ones,
with all but one of them, with a DENY over each, with prefixed ones and with wildcards. Every case
has a user of its own, so that all ACLs can be created before the first request.

A permission is written "READ TOPIC mx-one".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from tests.conformance.streams import heartbeat, internal, subtopology
from tests.conformance.two_brokers import STRANGER, TopicId
from tests.wire_client import batch

ONE, TWO = "mx-one", "mx-two"
GROUP, CONSUMERS, STREAMS = "mx-group", "mx-consumers", "mx-streams"
SHARERS, FETCHERS = "mx-sharers", "mx-fetchers"
TX = "mx-transaction"
CLUSTER = "CLUSTER kafka-cluster"


class Row(NamedTuple):
    """A request and the permissions that it needs.

    :ivar fields: the fields of the request; a function of the case's number for requests that
        change something
    :ivar needs: the permissions, in the order of the checks
    :ivar only_codes: compare the names and errors of the answer alone: the rest differs from run to
        run, or between brokers
    """

    api_key: int
    version: int
    fields: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    needs: Sequence[str] = ()
    only_codes: bool = False


class Case(NamedTuple):
    """A row with the ACLs of a user.

    :ivar title: as the id of a test
    :ivar acls: "ALLOW LITERAL READ TOPIC mx-one"
    """

    number: int
    row: Row
    title: str
    acls: Sequence[str]

    @property
    def user(self) -> str:
        return f"u{self.number}"

    @property
    def fields(self) -> Mapping[str, Any]:
        fields = self.row.fields
        return fields(self.number) if callable(fields) else fields


def cases() -> Iterator[Case]:
    """Yield the cases of all rows."""
    number = 0
    for row in ROWS:
        for title, acls in _acls(row):
            filled = [one.replace("{n}", str(number)) for one in acls]
            yield Case(number, row, f"{row.api_key}-v{row.version}-{number}-{title}", filled)
            number += 1


def _acls(row: Row) -> Iterator[tuple[str, list[str]]]:
    needs = row.needs
    right = [f"ALLOW LITERAL {need}" for need in needs]
    yield "nothing", []
    if not needs:
        return
    yield "right", right
    for index, need in enumerate(needs):
        if len(needs) > 1:
            yield f"all but {need}", right[:index] + right[index + 1 :]
        yield f"deny {need}", [*right, f"DENY LITERAL {need}"]
    yield "prefixed", [f"ALLOW PREFIXED {_shorter(need)}" for need in needs]
    wild = [need.rpartition(" ")[0] + " *" if CLUSTER not in need else need for need in needs]
    yield "wildcard", [f"ALLOW LITERAL {need}" for need in wild]
    yield "deny wildcard", [*right, *(f"DENY LITERAL {need}" for need in wild)]
    yield (
        "all operations",
        [f"ALLOW LITERAL ALL {need.partition(' ')[2]}" for need in dict.fromkeys(needs)],
    )


def _shorter(need: str) -> str:
    """Return a permission with a prefix of the resource's name."""
    return need if CLUSTER in need else need[:-1]


# --- parts of requests ---


def topics(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in (ONE, TWO)]


def topics_by_id(**fields: Any) -> list[dict[str, Any]]:
    return [{"topic_id": TopicId(name), **fields} for name in (ONE, TWO)]


def member_id(number: int) -> str:
    return str(uuid5(UUID(int=0), str(number)))


def records(number: int, **more: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "records": batch([b"x"], **more)}]


READ_BOTH = [f"READ TOPIC {ONE}", f"READ TOPIC {TWO}"]
DESCRIBE_BOTH = [f"DESCRIBE TOPIC {ONE}", f"DESCRIBE TOPIC {TWO}"]
WRITE_BOTH = [f"WRITE TOPIC {ONE}", f"WRITE TOPIC {TWO}"]
OFFSETS = [
    {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
]
FETCH_PARTITIONS = [
    {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
]
FETCH = {
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 1,
    "max_bytes": 1,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": [],
    "rack_id": "",
}
CONFIG_RESOURCES = ((2, ONE), (32, GROUP), (4, "1"), (16, "mx-metrics"), (8, "1"))
"""Type and name: a topic, a group, the broker, client metrics, the loggers of the broker."""
CONFIG_OF = {
    2: ("retention.ms", "1000000"),
    32: ("consumer.session.timeout.ms", "50000"),
    4: ("num.io.threads", "8"),
    16: ("interval.ms", "1000"),
    8: ("kafka.server", "INFO"),
}


def faulty_changes(**more: int) -> dict[str, Any]:
    """Return changes of configs of which some are refused whoever asks for them."""
    changes = [
        (2, ONE, [("retention.ms", "many")]),
        (2, "mx-null", [("retention.ms", None)]),
        (4, "1", [("num.io.threads", "many")]),
        (2, "mx-doubled", [("retention.ms", "1"), ("retention.ms", "2")]),
        (4, "7", [("num.io.threads", "8")]),
        (2, TWO, [("retention.ms", "1000000")]),
        (3, "mx-strange", []),
        (4, "1x", []),
        (4, "", [("num.io.threads", None)]),
        (8, "1", [("kafka.server", "LOUD")]),
        (8, "7", [("kafka.server", "INFO"), ("kafka.server", "INFO")]),
    ]
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": one, "value": value, **more} for one, value in configs],
            }
            for kind, name, configs in changes
        ],
        "validate_only": True,
    }


def config_needs(operation: str) -> list[str]:
    return [f"{operation} TOPIC {ONE}", f"{operation} GROUP {GROUP}", f"{operation} {CLUSTER}"]


def metadata(version: int, named: Any, **more: Any) -> dict[str, Any]:
    return {
        "topics": named,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": version >= 8,
        "include_cluster_authorized_operations": version in (8, 9, 10),
        **more,
    }


def acl_filter(name: str) -> dict[str, Any]:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": name,
        "pattern_type_filter": 3,
        "principal_filter": "User:nobody",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def share_state(**partition: Any) -> dict[str, Any]:
    topic = {"topic_id": TopicId(ONE), "partitions": [{"partition": 0, **partition}]}
    return {"group_id": "mx-state", "topics": [topic]}


def share_fetch(number: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": FETCHERS,
        "member_id": member_id(number),
        "share_session_epoch": 0,
        "max_wait": 300,
        "min_bytes": 0,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "share_acquire_mode": 0,
        "is_renew_ack": False,
        "topics": topics_by_id(partitions=[{"partition_index": 0, "acknowledgement_batches": []}]),
        "forgotten_topics_data": [],
        **more,
    }


def share_acknowledge(number: int) -> dict[str, Any]:
    acknowledged = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    partitions = [{"partition_index": 0, "acknowledgement_batches": acknowledged}]
    return {
        "group_id": SHARERS,
        "member_id": member_id(number),
        "share_session_epoch": 1,
        "is_renew_ack": False,
        "topics": topics_by_id(partitions=partitions),
    }


def consumer_heartbeat(number: int, name: str = "heartbeat") -> dict[str, Any]:
    return {
        "group_id": f"mx-{number}-{name}",
        "member_id": member_id(number),
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": [ONE, TWO],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }


def share_heartbeat(number: int) -> dict[str, Any]:
    return {
        "group_id": f"mx-{number}-share",
        "member_id": member_id(number),
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": [ONE, TWO],
    }


def streams_heartbeat(number: int) -> dict[str, Any]:
    topology = {"epoch": 0, "subtopologies": [subtopology("0", ONE, TWO)]}
    return heartbeat(f"mx-{number}-streams", member_id(number), 0, topology=topology)


def streams_creating(number: int) -> dict[str, Any]:
    """A topology with a topic that is to be created."""
    changelog = internal(f"mx-{number}-changelog")
    topology = {"epoch": 0, "subtopologies": [subtopology("0", ONE, changelogs=[changelog])]}
    return heartbeat(f"mx-{number}-creating", member_id(number), 0, topology=topology)


# --- the rows ---
# Names of resources with {n} have the number of the case.

ROWS: tuple[Row, ...] = (
    # Groups whose members would time out are described first.
    Row(
        69,
        1,
        {"group_ids": [CONSUMERS, "mx-none"], "include_authorized_operations": True},
        [f"DESCRIBE GROUP {CONSUMERS}", "DESCRIBE GROUP mx-none", *DESCRIBE_BOTH],
    ),
    Row(
        77,
        1,
        {"group_ids": [SHARERS, "mx-none"], "include_authorized_operations": True},
        [f"DESCRIBE GROUP {SHARERS}", "DESCRIBE GROUP mx-none", *DESCRIBE_BOTH],
    ),
    Row(
        89,
        0,
        {"group_ids": [STREAMS, "mx-none"], "include_authorized_operations": True},
        [f"DESCRIBE GROUP {STREAMS}", "DESCRIBE GROUP mx-none", *DESCRIBE_BOTH],
    ),
    *(
        Row(
            0,
            version,
            lambda number, make=make: {
                "transactional_id": None,
                "acks": -1,
                "timeout": 30_000,
                "topic_data": make(partition_data=records(number)),
            },
            WRITE_BOTH,
        )
        for version, make in ((9, topics), (13, topics_by_id))
    ),
    Row(
        0,
        9,
        {
            "transactional_id": None,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [{"name": "mx-missing", "partition_data": records(0)}],
        },
        ["WRITE TOPIC mx-missing"],
    ),
    Row(
        0,
        11,
        {
            "transactional_id": TX,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": topics(
                partition_data=records(
                    0, transactional=True, producer_id=STRANGER, producer_epoch=0, base_sequence=0
                )
            ),
        },
        [f"WRITE TRANSACTIONAL_ID {TX}", *WRITE_BOTH],
    ),
    Row(
        1,
        12,
        {**FETCH, "topics": [{"topic": one, "partitions": FETCH_PARTITIONS} for one in (ONE, TWO)]},
        READ_BOTH,
        only_codes=True,
    ),
    Row(1, 16, {**FETCH, "topics": topics_by_id(partitions=FETCH_PARTITIONS)}, READ_BOTH, True),
    Row(
        1,
        12,
        {**FETCH, "topics": [{"topic": "mx-missing", "partitions": FETCH_PARTITIONS}]},
        ["READ TOPIC mx-missing"],
    ),
    Row(
        2,
        9,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": topics(
                partitions=[{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}]
            ),
        },
        DESCRIBE_BOTH,
    ),
    Row(3, 12, metadata(12, topics(topic_id=None)), DESCRIBE_BOTH),
    Row(3, 12, metadata(12, [{"name": None, "topic_id": TopicId(ONE)}]), DESCRIBE_BOTH[:1]),
    Row(3, 12, metadata(12, None), DESCRIBE_BOTH),
    Row(3, 0, metadata(0, []), DESCRIBE_BOTH),
    Row(3, 9, metadata(9, topics()), [*DESCRIBE_BOTH, f"DESCRIBE {CLUSTER}"]),
    Row(3, 4, metadata(4, [{"name": "mx-missing"}]), ["DESCRIBE TOPIC mx-missing"]),
    *(
        Row(
            3,
            12,
            lambda number: metadata(
                12, [{"name": f"mx-{number}-new", "topic_id": None}], allow_auto_topic_creation=True
            ),
            ["DESCRIBE TOPIC mx-{n}-new", create],
            only_codes=True,
        )
        for create in ("CREATE TOPIC mx-{n}-new", f"CREATE {CLUSTER}")
    ),
    Row(
        8,
        9,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics(partitions=OFFSETS),
        },
        [f"READ GROUP {GROUP}", *READ_BOTH],
    ),
    Row(
        8,
        10,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics_by_id(partitions=OFFSETS),
        },
        [f"READ GROUP {GROUP}", *READ_BOTH],
    ),
    *(
        Row(
            9,
            version,
            {
                "groups": [
                    {
                        "group_id": name,
                        "member_id": None,
                        "member_epoch": -1,
                        "topics": named,
                    }
                    for name in (GROUP, "mx-none")
                ],
                "require_stable": False,
            },
            [f"DESCRIBE GROUP {GROUP}", "DESCRIBE GROUP mx-none", *DESCRIBE_BOTH],
        )
        for version, named in (
            (8, topics(partition_indexes=[0])),
            (8, None),
            (10, topics_by_id(partition_indexes=[0])),
            (10, None),
        )
    ),
    Row(
        9,
        5,
        {"group_id": GROUP, "topics": topics(partition_indexes=[0])},
        [f"DESCRIBE GROUP {GROUP}", *DESCRIBE_BOTH],
    ),
    Row(
        10,
        6,
        {"key_type": 0, "coordinator_keys": [GROUP, "mx-none"]},
        [f"DESCRIBE GROUP {GROUP}", "DESCRIBE GROUP mx-none"],
    ),
    Row(10, 2, {"key_type": 0, "key": GROUP}, [f"DESCRIBE GROUP {GROUP}"]),
    Row(
        10,
        6,
        {"key_type": 1, "coordinator_keys": [TX]},
        [f"DESCRIBE TRANSACTIONAL_ID {TX}"],
    ),
    Row(10, 3, {"key_type": 1, "key": TX}, [f"DESCRIBE TRANSACTIONAL_ID {TX}"]),
    Row(
        10,
        6,
        {"key_type": 2, "coordinator_keys": [f"{GROUP}:{'A' * 22}:0", "nonsense"]},
        [f"CLUSTER_ACTION {CLUSTER}"],
    ),
    Row(
        11,
        9,
        {
            "group_id": "mx-classic",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        },
        ["READ GROUP mx-classic"],
    ),
    Row(
        12,
        4,
        {"group_id": GROUP, "generation_id": 1, "member_id": "nobody", "group_instance_id": None},
        [f"READ GROUP {GROUP}"],
    ),
    *(
        Row(
            13,
            version,
            {
                "group_id": GROUP,
                "member_id": "nobody",
                "members": [{"member_id": "nobody", "group_instance_id": None}],
            },
            [f"READ GROUP {GROUP}"],
        )
        for version in (2, 5)
    ),
    *(
        Row(
            14,
            5,
            {
                "group_id": GROUP,
                "generation_id": 1,
                "member_id": "nobody",
                "group_instance_id": None,
                "protocol_type": protocol,
                "protocol_name": protocol,
                "assignments": [],
            },
            [f"READ GROUP {GROUP}"],
        )
        for protocol in ("consumer", None)
    ),
    *(
        Row(
            15,
            version,
            {"groups": [GROUP, "mx-none"], "include_authorized_operations": True},
            [f"DESCRIBE GROUP {GROUP}", "DESCRIBE GROUP mx-none"],
        )
        for version in (5, 6)
    ),
    *(
        Row(16, 5, {"states_filter": [], "types_filter": ["classic"]}, [need])
        for need in (f"DESCRIBE GROUP {GROUP}", f"DESCRIBE {CLUSTER}")
    ),
    Row(17, 1, {"mechanism": "PLAIN"}),
    Row(36, 2, {"auth_bytes": b"\0u1\0x"}),
    Row(18, 3, {"client_software_name": "x", "client_software_version": "1"}, only_codes=True),
    *(
        Row(
            19,
            7,
            lambda number: {
                "topics": [
                    {
                        "name": f"mx-{number}-{name}",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [],
                    }
                    for name in ("a", "b", "c", "c")
                ],
                "timeout": 30_000,
                "validate_only": True,
            },
            needs,
            only_codes=True,
        )
        for needs in (
            ["CREATE TOPIC mx-{n}-a", "CREATE TOPIC mx-{n}-b", "DESCRIBE_CONFIGS TOPIC mx-{n}-a"],
            [f"CREATE {CLUSTER}"],
        )
    ),
    *(
        Row(
            20,
            6,
            {
                "topics": [
                    {"name": "mx-missing", "topic_id": None},
                    {"name": None, "topic_id": TopicId("mx-missing-too")},
                ],
                "timeout": 30_000,
            },
            [need],
        )
        for need in ("DELETE TOPIC mx-missing", f"DELETE {CLUSTER}")
    ),
    Row(
        20,
        6,
        lambda number: {
            "topics": [{"name": f"mx-{number}-named", "topic_id": None}],
            "timeout": 30_000,
        },
        ["DELETE TOPIC mx-{n}-named", "DESCRIBE TOPIC mx-{n}-named"],
    ),
    Row(
        20,
        6,
        lambda number: {
            "topics": [{"name": None, "topic_id": TopicId(f"mx-{number}-fresh")}],
            "timeout": 30_000,
        },
        ["DELETE TOPIC mx-{n}-fresh", "DESCRIBE TOPIC mx-{n}-fresh"],
    ),
    Row(
        21,
        2,
        {"topics": topics(partitions=[{"partition_index": 0, "offset": 0}]), "timeout": 30_000},
        [f"DELETE TOPIC {ONE}", f"DELETE TOPIC {TWO}"],
    ),
    *(
        Row(
            22,
            4,
            {
                "transactional_id": None,
                "transaction_timeout": 1000,
                "producer_id": -1,
                "producer_epoch": -1,
            },
            [need],
        )
        for need in (f"IDEMPOTENT_WRITE {CLUSTER}", f"WRITE TOPIC {ONE}")
    ),
    Row(
        22,
        4,
        lambda number: {
            "transactional_id": f"mx-{number}-tx",
            "transaction_timeout": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        ["WRITE TRANSACTIONAL_ID mx-{n}-tx"],
    ),
    *(
        Row(
            23,
            4,
            {
                "replica_id": -1,
                "topics": [
                    {
                        "topic": one,
                        "partitions": [
                            {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 7}
                        ],
                    }
                    for one in (ONE, TWO)
                ],
            },
            needs,
        )
        for needs in (DESCRIBE_BOTH, [f"CLUSTER_ACTION {CLUSTER}"])
    ),
    Row(
        24,
        3,
        {
            "v3_and_below_transactional_id": TX,
            "v3_and_below_producer_id": STRANGER,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": topics(partitions=[0]),
        },
        [f"WRITE TRANSACTIONAL_ID {TX}", *WRITE_BOTH],
    ),
    Row(
        24,
        4,
        {
            "transactions": [
                {
                    "transactional_id": TX,
                    "producer_id": STRANGER,
                    "producer_epoch": 0,
                    "verify_only": False,
                    "topics": topics(partitions=[0]),
                }
            ]
        },
        [f"CLUSTER_ACTION {CLUSTER}"],
    ),
    Row(
        25,
        4,
        {"transactional_id": TX, "producer_id": STRANGER, "producer_epoch": 0, "group_id": GROUP},
        [f"WRITE TRANSACTIONAL_ID {TX}", f"READ GROUP {GROUP}"],
    ),
    Row(
        26,
        4,
        {"transactional_id": TX, "producer_id": STRANGER, "producer_epoch": 0, "committed": True},
        [f"WRITE TRANSACTIONAL_ID {TX}"],
    ),
    *(
        Row(
            27,
            1,
            {
                "markers": [
                    {
                        "producer_id": 1,
                        "producer_epoch": 0,
                        "transaction_result": False,
                        "topics": [{"name": "mx-missing", "partition_indexes": [0]}],
                        "coordinator_epoch": 0,
                    }
                ]
            },
            [need],
        )
        for need in (f"ALTER {CLUSTER}", f"CLUSTER_ACTION {CLUSTER}")
    ),
    Row(
        28,
        3,
        {
            "transactional_id": TX,
            "group_id": GROUP,
            "producer_id": STRANGER,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics(partitions=OFFSETS),
        },
        [f"WRITE TRANSACTIONAL_ID {TX}", f"READ GROUP {GROUP}", *READ_BOTH],
        only_codes=True,
    ),
    Row(
        28,
        6,
        {
            "transactional_id": TX,
            "group_id": GROUP,
            "producer_id": STRANGER,
            "producer_epoch": 0,
            "topics": topics_by_id(partitions=OFFSETS),
        },
        [f"WRITE TRANSACTIONAL_ID {TX}", f"READ GROUP {GROUP}", *READ_BOTH],
        only_codes=True,
    ),
    Row(29, 3, acl_filter("mx-none"), [f"DESCRIBE {CLUSTER}"]),
    Row(
        30,
        3,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "resource_pattern_type": 3,
                    "principal": "User:nobody",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
                for name in ("mx-nobody", "")
            ]
        },
        [f"ALTER {CLUSTER}"],
    ),
    Row(31, 3, {"filters": [acl_filter("mx-none")]}, [f"ALTER {CLUSTER}"]),
    *(
        Row(
            32,
            4,
            {
                "resources": [
                    {
                        "resource_type": kind,
                        "resource_name": name,
                        "configuration_keys": [CONFIG_OF[kind][0]],
                    }
                    for kind, name in resources
                ],
                "include_synonyms": False,
                "include_documentation": False,
            },
            needs,
            only_codes=True,
        )
        for resources, needs in (
            (CONFIG_RESOURCES, config_needs("DESCRIBE_CONFIGS")),
            (((2, "mx-missing"),), ["DESCRIBE_CONFIGS TOPIC mx-missing"]),
        )
    ),
    Row(
        33,
        2,
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": CONFIG_OF[kind][0], "value": CONFIG_OF[kind][1]}],
                }
                for kind, name in CONFIG_RESOURCES[:4]
            ],
            "validate_only": True,
        },
        config_needs("ALTER_CONFIGS"),
    ),
    Row(
        44,
        1,
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {
                            "name": CONFIG_OF[kind][0],
                            "config_operation": 0,
                            "value": CONFIG_OF[kind][1],
                        }
                    ],
                }
                for kind, name in CONFIG_RESOURCES[:4]
            ],
            "validate_only": True,
        },
        config_needs("ALTER_CONFIGS"),
    ),
    Row(
        44,
        1,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configs": []}
                for name in (ONE, "mx-missing", "mx-twice", "mx-twice")
            ],
            "validate_only": True,
        },
        [f"ALTER_CONFIGS TOPIC {ONE}", "ALTER_CONFIGS TOPIC mx-missing"],
    ),
    *(
        Row(api_key, version, faulty_changes(**more), [f"ALTER_CONFIGS TOPIC {ONE}"])
        for api_key, version, more in ((33, 2, {}), (44, 1, {"config_operation": 0}))
    ),
    Row(
        34,
        2,
        {"dirs": [{"path": "/nowhere", "topics": topics(partitions=[0])}]},
        [f"ALTER {CLUSTER}"],
    ),
    *(
        Row(
            35,
            version,
            {"topics": [{"topic": "mx-missing", "partitions": [0]}]},
            [f"DESCRIBE {CLUSTER}"],
            only_codes=True,
        )
        for version in (2, 4)
    ),
    Row(
        37,
        3,
        {
            "topics": [{"name": name, "count": 5, "assignments": None} for name in (ONE, TWO)],
            "timeout": 30_000,
            "validate_only": True,
        },
        [f"ALTER TOPIC {ONE}", f"ALTER TOPIC {TWO}"],
    ),
    Row(
        37,
        3,
        {
            "topics": [
                {"name": name, "count": 5, "assignments": None}
                for name in (ONE, "mx-twice", "mx-twice", "mx-missing")
            ],
            "timeout": 30_000,
            "validate_only": True,
        },
        [f"ALTER TOPIC {ONE}", "ALTER TOPIC mx-missing"],
    ),
    Row(
        42,
        2,
        {"groups_names": ["mx-none", "mx-never"]},
        ["DELETE GROUP mx-none", "DELETE GROUP mx-never"],
    ),
    Row(
        43,
        2,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": ONE, "partitions": [0]}],
            "timeout": 30_000,
        },
        [f"ALTER {CLUSTER}"],
    ),
    Row(
        45,
        0,
        {
            "timeout": 30_000,
            "topics": [{"name": ONE, "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
        [f"ALTER {CLUSTER}"],
    ),
    Row(46, 0, {"timeout": 30_000, "topics": None}, [f"DESCRIBE {CLUSTER}"]),
    Row(
        47,
        0,
        {"group_id": GROUP, "topics": topics(partitions=[{"partition_index": 1}])},
        [f"DELETE GROUP {GROUP}", *READ_BOTH],
    ),
    Row(
        47,
        0,
        {"group_id": "mx-none", "topics": topics(partitions=[{"partition_index": 1}])},
        ["DELETE GROUP mx-none", *READ_BOTH],
    ),
    Row(
        55,
        1,
        {"topics": [{"topic_name": "mx-missing", "partitions": [{"partition_index": 0}]}]},
        [f"DESCRIBE {CLUSTER}"],
        only_codes=True,
    ),
    Row(
        48,
        1,
        {
            "components": [{"entity_type": "user", "match_type": 0, "match": "mx-nobody"}],
            "strict": True,
        },
        [f"DESCRIBE_CONFIGS {CLUSTER}"],
    ),
    Row(
        49,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "mx-nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": True}],
                },
                {
                    "entity": [{"entity_type": "client-id", "entity_name": None}],
                    "ops": [{"key": "nonsense", "value": 1.0, "remove": False}],
                },
            ],
            "validate_only": True,
        },
        [f"ALTER_CONFIGS {CLUSTER}"],
    ),
    Row(50, 0, {"users": [{"name": "mx-nobody"}]}, [f"DESCRIBE {CLUSTER}"]),
    Row(
        51,
        0,
        {
            "deletions": [{"name": "mx-nobody", "mechanism": 1}],
            "upsertions": [
                {
                    "name": "mx-somebody",
                    "mechanism": 1,
                    "iterations": 1,
                    "salt": b"salt",
                    "salted_password": b"x" * 32,
                }
            ],
        },
        [f"ALTER {CLUSTER}"],
    ),
    Row(
        57,
        1,
        {
            "timeout": 30_000,
            "feature_updates": [
                {"feature": "mx.unknown", "max_version_level": 1, "upgrade_type": 1}
            ],
            "validate_only": True,
        },
        [f"ALTER {CLUSTER}"],
        only_codes=True,
    ),
    Row(
        60,
        1,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        [f"DESCRIBE {CLUSTER}"],
    ),
    Row(
        61,
        0,
        {"topics": topics(partition_indexes=[1]) + [{"name": "mx in", "partition_indexes": [0]}]},
        READ_BOTH,
    ),
    Row(65, 0, {"transactional_ids": [TX]}, [f"DESCRIBE TRANSACTIONAL_ID {TX}", *DESCRIBE_BOTH]),
    Row(
        66,
        1,
        {"state_filters": ["Ongoing"], "producer_id_filters": [], "duration_filter": -1},
        [f"DESCRIBE TRANSACTIONAL_ID {TX}"],
    ),
    Row(66, 1, {"state_filters": ["Ongoing"], "duration_filter": -1}, [f"DESCRIBE {CLUSTER}"]),
    Row(
        68,
        1,
        consumer_heartbeat,
        ["READ GROUP mx-{n}-heartbeat", *DESCRIBE_BOTH],
        only_codes=True,
    ),
    Row(74, 1, {"resource_types": [32]}, [f"DESCRIBE_CONFIGS {CLUSTER}"], only_codes=True),
    Row(
        75,
        0,
        {
            "topics": [{"name": one} for one in (ONE, TWO, "mx-missing")],
            "response_partition_limit": 100,
            "cursor": None,
        },
        [*DESCRIBE_BOTH, "DESCRIBE TOPIC mx-missing"],
    ),
    Row(
        75,
        0,
        {"topics": [], "response_partition_limit": 2000, "cursor": None},
        DESCRIBE_BOTH,
    ),
    Row(
        76,
        1,
        share_heartbeat,
        ["READ GROUP mx-{n}-share", *DESCRIBE_BOTH],
        only_codes=True,
    ),
    Row(78, 1, share_fetch, [f"READ GROUP {FETCHERS}", *READ_BOTH], only_codes=True),
    Row(79, 1, share_acknowledge, [f"READ GROUP {SHARERS}", *READ_BOTH]),
    Row(
        83,
        0,
        share_state(state_epoch=0, start_offset=0),
        [f"CLUSTER_ACTION {CLUSTER}"],
    ),
    Row(84, 0, share_state(leader_epoch=0), [f"CLUSTER_ACTION {CLUSTER}"]),
    Row(
        85,
        0,
        share_state(state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[]),
        [f"CLUSTER_ACTION {CLUSTER}"],
    ),
    Row(87, 0, share_state(leader_epoch=0), [f"CLUSTER_ACTION {CLUSTER}"]),
    Row(86, 0, share_state(), [f"CLUSTER_ACTION {CLUSTER}"]),
    Row(88, 0, streams_heartbeat, ["READ GROUP mx-{n}-streams", *DESCRIBE_BOTH], only_codes=True),
    *(
        Row(
            88,
            0,
            streams_creating,
            [
                "READ GROUP mx-{n}-creating",
                f"DESCRIBE TOPIC {ONE}",
                "DESCRIBE TOPIC mx-{n}-changelog",
                create,
            ],
            only_codes=True,
        )
        for create in ("CREATE TOPIC mx-{n}-changelog", f"CREATE {CLUSTER}")
    ),
    *(
        Row(
            90,
            1,
            {"groups": [{"group_id": name, "topics": named} for name in (SHARERS, "mx-none")]},
            [f"DESCRIBE GROUP {SHARERS}", "DESCRIBE GROUP mx-none", *DESCRIBE_BOTH],
        )
        for named in ([{"topic_name": one, "partitions": [0]} for one in (ONE, TWO)], None)
    ),
    Row(
        91,
        0,
        lambda number: {
            "group_id": f"mx-{number}-altered",
            "topics": [
                {
                    "topic_name": one,
                    "partitions": [{"partition_index": 0, "start_offset": 0}],
                }
                for one in (ONE, TWO, "mx-missing")
            ],
        },
        ["READ GROUP mx-{n}-altered", *READ_BOTH],
    ),
    *(
        Row(
            92,
            0,
            {"group_id": name, "topics": [{"topic_name": one} for one in (ONE, TWO)]},
            [f"DELETE GROUP {name}", *READ_BOTH],
        )
        for name in ("mx-none", "mx-emptied")
    ),
    Row(
        93,
        0,
        {
            "group_id": "mx-none",
            "topology_description": {"subtopologies": [], "global_stores": []},
        },
        ["READ GROUP mx-none"],
    ),
    Row(94, 0, {"controller_id": 1}, [f"ALTER {CLUSTER}"]),
)
