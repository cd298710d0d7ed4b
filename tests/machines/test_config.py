"""The broker's configuration: names, ranges, Kafka's messages, and what a topic or group makes of
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.config import rules
from headrace.broker.config.broker_config import Config
from headrace.broker.config.keys import ConfigKey, InvalidValue, config_keys, render
from headrace.coordinators.iso_durations import duration_ms
from headrace.protocol.errors import ConfigError, ErrorCode

SOURCES = Path(__file__).parent.parent.parent / "src" / "headrace"
ALL_KEYS = [key for kind in ("broker", "topic", "group") for key in config_keys(kind).values()]


@dataclass
class SomeTopic:
    configs: Mapping[str, str] = field(default_factory=dict)
    name: str = "t"


class Store(dict[tuple[str, str], dict[str, str]]):
    """Configs set at run time, in a dict."""

    def configs(self, kind: str, name: str) -> Mapping[str, str]:
        return self.get((kind, name), {})


# Every message here is what Apache Kafka 4.4.0 answered to the same value.
TOPIC_MESSAGES = {
    (
        "retention.ms",
        "x",
    ): "Invalid value x for configuration retention.ms: Not a number of type LONG",
    (
        "retention.ms",
        "-2",
    ): "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    (
        "retention.ms",
        "",
    ): "Invalid value  for configuration retention.ms: Not a number of type LONG",
    (
        "retention.ms",
        "1.5",
    ): "Invalid value 1.5 for configuration retention.ms: Not a number of type LONG",
    ("min.compaction.lag.ms", "9223372036854775808"): (
        "Invalid value 9223372036854775808 for configuration min.compaction.lag.ms: Not a "
        "number of type LONG"
    ),
    (
        "segment.bytes",
        "100",
    ): "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
    ("segment.bytes", "99999999999"): (
        "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT"
    ),
    (
        "cleanup.policy",
        "x",
    ): "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
    ("preallocate", "maybe"): (
        "Invalid value maybe for configuration preallocate: Expected value to be either "
        "true or false"
    ),
    ("min.cleanable.dirty.ratio", "2"): (
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no "
        "more than 1"
    ),
    ("min.cleanable.dirty.ratio", "x"): (
        "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"
    ),
    ("compression.type", "GZIP"): (
        "Invalid value GZIP for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer"
    ),
    ("compression.gzip.level", "0"): (
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 "
        "and 9 or equal to -1"
    ),
    ("compression.zstd.level", "23"): (
        "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22"
    ),
    ("leader.replication.throttled.replicas", "x"): (
        "Invalid value [x] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of "
        "replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    ),
    ("remote.storage.enable", "true"): (
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
        "with remote log storage."
    ),
    ("nope.nope", "1"): "Unknown topic config name: nope.nope",
}
GROUP_MESSAGES = {
    ("share.record.lock.duration.ms", "500"): (
        "Invalid value 500 for configuration share.record.lock.duration.ms: Value must be "
        "at least 1000"
    ),
    ("share.record.lock.duration.ms", "70000"): (
        "share.record.lock.duration.ms must be in the range 15000 to 60000 inclusive."
    ),
    ("share.record.lock.duration.ms", "14000"): (
        "share.record.lock.duration.ms must be in the range 15000 to 60000 inclusive."
    ),
    ("share.session.timeout.ms", "60001"): (
        "share.session.timeout.ms must be in the range 45000 to 60000 inclusive."
    ),
    ("share.heartbeat.interval.ms", "4000"): (
        "share.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive."
    ),
    ("share.delivery.count.limit", "11"): (
        "share.delivery.count.limit must be in the range 2 to 10 inclusive."
    ),
    ("share.partition.max.record.locks", "4001"): (
        "share.partition.max.record.locks must be in the range 100 to 4000 inclusive."
    ),
    ("share.isolation.level", "READ_COMMITTED"): (
        "Invalid value READ_COMMITTED for configuration share.isolation.level: "
        "String must be one of: read_committed, read_uncommitted"
    ),
    ("share.auto.offset.reset", "none"): (
        "Invalid value none for configuration share.auto.offset.reset: Invalid value `none` "
        "for configuration "
        "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
        "'by_duration:<PnDTnHnMn.nS>'."
    ),
    ("consumer.session.timeout.ms", "1"): (
        "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."
    ),
    ("share.session.timeout.ms", ""): (
        "Invalid value  for configuration share.session.timeout.ms: Not a number of type INT"
    ),
    ("share.session.timeout.ms", "0"): (
        "Invalid value 0 for configuration share.session.timeout.ms: Value must be at least 1"
    ),
    ("share.session.timeout.ms", "44999"): (
        "share.session.timeout.ms must be in the range 45000 to 60000 inclusive."
    ),
    ("share.heartbeat.interval.ms", "15001"): (
        "share.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive."
    ),
    ("share.delivery.count.limit", "1"): (
        "Invalid value 1 for configuration share.delivery.count.limit: Value must be at least 2"
    ),
    ("share.partition.max.record.locks", "99"): (
        "Invalid value 99 for configuration share.partition.max.record.locks: Value must be "
        "at least 100"
    ),
    ("share.assignment.interval.ms", "-1"): (
        "Invalid value -1 for configuration share.assignment.interval.ms: Value must be at least 0"
    ),
    ("share.assignment.interval.ms", "15001"): (
        "share.assignment.interval.ms must be in the range 0 to 15000 inclusive."
    ),
    ("share.renew.acknowledge.enable", "yes"): (
        "Invalid value yes for configuration share.renew.acknowledge.enable: Expected value "
        "to be either true or false"
    ),
    ("share.auto.offset.reset", "by_duration:P1M"): (
        "Invalid value by_duration:P1M for configuration share.auto.offset.reset: Invalid "
        "value `by_duration:P1M` for "
        "configuration share.auto.offset.reset. The value must be either 'earliest', "
        "'latest' or of the format "
        "'by_duration:<PnDTnHnMn.nS>'."
    ),
    ("bogus.x", "1"): "Unknown group config name: bogus.x",
    ("streams.num.standby.replicas", "3"): (
        "streams.num.standby.replicas must be less than or equal to 2"
    ),
    ("streams.num.warmup.replicas", "21"): (
        "streams.num.warmup.replicas must be less than or equal to 20"
    ),
    ("streams.task.offset.interval.ms", "14999"): (
        "streams.task.offset.interval.ms must be greater than or equal to 15000"
    ),
    ("streams.assignor.name", "nope"): (
        "streams.assignor.name 'nope' is not a registered task assignor. "
        "Registered assignors are: [sticky]."
    ),
    ("streams.rack.aware.assignment.tags", "a,a"): (
        "streams.rack.aware.assignment.tags must not contain duplicate tag keys."
    ),
    ("streams.rack.aware.assignment.tags", "a,,b"): (
        "Configuration 'streams.rack.aware.assignment.tags' values must not be empty."
    ),
}
BROKER_MESSAGES = {
    (
        "log.retention.ms",
        "x",
    ): "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
    ("log.retention.hours", "5"): "Cannot update these configs dynamically: [log.retention.hours]",
    ("broker.id", "4"): "Cannot update these configs dynamically: [broker.id]",
    ("ssl.keystore.location", "/x"): (
        "These security configs can be dynamically updated only per-listener using the "
        "listener prefix: "
        "[ssl.keystore.location]"
    ),
    ("group.share.assignment.interval.ms", "99999"): (
        "group.share.assignment.interval.ms must be less than or equal to "
        "group.share.max.assignment.interval.ms"
    ),
}


@pytest.mark.parametrize(("config", "message"), TOPIC_MESSAGES.items())
def test_a_topic_config_is_refused_in_kafkas_words(config: tuple[str, str], message: str) -> None:
    refusal = Config().check("topic", dict([config]))
    assert refusal is not None
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(("config", "message"), GROUP_MESSAGES.items())
def test_a_group_config_is_refused_in_kafkas_words(config: tuple[str, str], message: str) -> None:
    refusal = Config().check("group", dict([config]))
    assert refusal is not None
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(("config", "message"), BROKER_MESSAGES.items())
def test_a_broker_config_is_refused_in_kafkas_words(config: tuple[str, str], message: str) -> None:
    refusal = rules.check_broker_changes("1", dict([config]), Config())
    assert refusal is not None
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("topic", "retention.ms", " 5 "),
        ("topic", "retention.ms", "+7"),
        ("topic", "retention.bytes", "-5"),
        ("topic", "cleanup.policy", ""),
        ("topic", "cleanup.policy", "delete, compact"),
        ("topic", "preallocate", "TRUE"),
        ("topic", "compression.gzip.level", "-1"),
        ("topic", "leader.replication.throttled.replicas", "*"),
        ("topic", "leader.replication.throttled.replicas", "0:1,1:1"),
        ("topic", "internal.segment.bytes", "2000"),
        ("group", "share.auto.offset.reset", "by_duration:PT1H"),
        ("group", "share.auto.offset.reset", "by_duration:P2DT3H4M5.5S"),
        ("group", "share.auto.offset.reset", "by_duration:PT1,5S"),
        ("broker", "log.retention.ms", "5"),
    ],
)
def test_what_kafka_accepts_is_accepted(kind: str, name: str, value: str) -> None:
    assert Config().check(kind, {name: value}) is None


@pytest.mark.parametrize(
    "duration",
    ["", "P", "PT", "P1DT", "xx", "-PT1H", "PT-1H", "P1Y", "PT1.2.3S", "1H", f"P{'9' * 400}D"],
)
def test_a_reset_by_something_that_is_no_duration_is_refused(duration: str) -> None:
    assert (
        Config().check("group", {"share.auto.offset.reset": f"by_duration:{duration}"}) is not None
    )


@pytest.mark.parametrize(
    ("duration", "expected_ms"),
    [("PT1,5S", 1_500), ("PT1.S", 1_000), ("p1dt2h3m0.0005S", 93_780_000), ("PT0.9996S", 1_000)],
)
def test_an_accepted_duration_can_be_read(duration: str, expected_ms: int) -> None:
    assert duration_ms(duration) == expected_ms


def test_configs_that_contradict_each_other_are_refused() -> None:
    config = Config()
    topic = config.check("topic", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    assert topic is not None
    assert (
        topic.message
        == "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )
    config = Config(
        {"group.share.min.session.timeout.ms": "6000", "group.share.session.timeout.ms": "10000"}
    )
    group = config.check("group", {"share.heartbeat.interval.ms": "10000"})
    assert group is not None
    assert (
        group.message == "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
    )
    assert config.check("group", {"share.heartbeat.interval.ms": "9999"}) is None


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_every_default_is_a_value_that_the_config_may_have(key: ConfigKey) -> None:
    if key.default is not None:
        assert key.parse(render(key.parse(key.default))) == key.parse(key.default)


BOUNDED = [
    key
    for key in ALL_KEYS
    if key.type in ("INT", "SHORT", "LONG") and re.fullmatch(r"\[-?\d+,.*\]", key.range)
]


@given(key=st.sampled_from(BOUNDED), number=st.integers(-(2**64), 2**64))
def test_a_number_is_accepted_exactly_when_it_is_in_its_range(key: ConfigKey, number: int) -> None:
    match = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\]", key.range)
    assert match is not None
    bits = {"SHORT": 15, "INT": 31, "LONG": 63}[key.type]
    highest = min(int(match[2]) if match[2] else 2**bits, 2**bits - 1)
    if int(match[1]) <= number <= highest:
        assert key.parse(str(number)) == number
    else:
        with pytest.raises(InvalidValue, match=r"must be|Not a number"):
            key.parse(str(number))


@given(key=st.sampled_from(ALL_KEYS), text=st.text(max_size=20))
def test_any_text_is_parsed_or_refused(key: ConfigKey, text: str) -> None:
    try:
        value = key.parse(text)
    except InvalidValue:
        return
    assert key.parse(render(value)) == value or value != value  # NaN


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"num.partition": "1"}, "unknown config num.partition; did you mean num.partitions?"),
        (
            {"retention.ms": "1"},
            "unknown config retention.ms: that is a topic config; did you mean log.retention.ms?",
        ),
        ({"xyzzy": "1"}, "unknown config xyzzy"),
        ({"log.partitions": "1"}, "unknown config log.partitions"),
        (
            {"process.roles": "controller"},
            "process.roles is controller: this is the configuration of a controller, and there are "
            "none here. Start with that of a broker",
        ),
        (
            {"num.partitions": "0"},
            "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (
            {"group.share.record.lock.duration.ms": "61000"},
            (
                "group.share.record.lock.duration.ms must be less than or equal to "
                "group.share.max.record.lock.duration.ms"
            ),
        ),
        (
            {"group.share.max.share.sessions": "199"},
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
        ),
    ],
)
def test_a_broker_does_not_start_with_a_bad_config(configs: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(configs)
    assert str(refused.value) == message


def test_configs_without_effect_are_accepted_and_named() -> None:
    config = Config(
        {"num.partitions": "3", "metadata.log.dir": "/x", "listener.name.a.tcp.keepalive": "x"}
    )
    assert config.without_effect == ("metadata.log.dir", "listener.name.a.tcp.keepalive")
    assert config.retired == ()
    assert config.get_int("num.partitions") == 3


def test_names_that_only_older_versions_and_other_products_have_are_accepted_and_named() -> None:
    names = ("zookeeper.connect", "inter.broker.protocol.version", "confluent.balancer.enable")
    config = Config(dict.fromkeys(names, "x"))
    assert config.retired == names
    assert config.without_effect == ()


def test_everything_that_must_change_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        Config({"zookeeper.connect": "a:1", "port": "9092", "xyzzy": "1", "num.partitions": "0"})
    assert str(refused.value) == (
        "port is of an older Apache Kafka: set listeners; unknown config xyzzy; "
        "Invalid value 0 for configuration num.partitions: Value must be at least 1"
    )


def test_the_data_directory_is_that_of_log_dirs() -> None:
    assert Config().data_dir is None
    assert Config({"log.dir": "/x"}).data_dir == Path("/x")
    config = Config({"log.dir": "/x", "log.dirs": "/y"})
    assert config.data_dir == Path("/y")


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_several_data_directories_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="names 2 directories"):
        Config({name: "/x, /y"})


def test_every_config_that_is_documented_to_have_an_effect_is_read_somewhere() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    source = "\n".join(texts)
    of_others = {
        name: key
        for kind in ("topic", "group")
        for key in config_keys(kind).values()
        for name in (*(synonym.name for synonym in key.synonyms), key.minimum, key.maximum)
        if name is not None
    }
    assert of_others.keys() <= config_keys("broker").keys()
    assembled = re.compile(
        r"(offsets\.topic|share\.coordinator\.state\.topic|transaction\.state\.log)"
        r"\.(num\.partitions|segment\.bytes)"
        r"|(controller\.)?quota\.window\.(num|size\.seconds)"
    )
    unread = [
        key.name
        for key in config_keys("broker").values()
        if key.documentation
        and f'"{key.name}"' not in source
        and key.name not in of_others
        and not assembled.match(key.name)
    ]
    assert unread == []


def test_topics_take_from_the_broker_what_they_do_not_say_themselves() -> None:
    config = Config(
        {"log.retention.hours": "2", "log.retention.minutes": "30", "message.max.bytes": "5000"}
    )
    plain, own = (
        SomeTopic(),
        SomeTopic({"retention.ms": " 7 ", "cleanup.policy": "compact, delete"}),
    )
    assert config.topic_value(plain, "retention.ms") == str(30 * 60_000)
    assert config.topic_value(own, "retention.ms") == "7"
    assert config.log_config(plain).max_message_bytes == 5000
    assert config.log_config(own).cleanup_policy == "compact,delete"
    assert config.log_config(own).retention_ms == 7
    assert config.log_config(plain).flush_ms == 2**63 - 1
    assert Config({"log.retention.hours": "-1"}).log_config(plain).retention_ms == -1
    assert Config().log_config(plain).retention_ms == 7 * 24 * 3600 * 1000


def test_internal_segment_bytes_makes_small_segments() -> None:
    assert Config().log_config(SomeTopic({"internal.segment.bytes": "2000"})).segment_bytes == 2000
    assert Config().log_config(SomeTopic({"segment.bytes": "2000000"})).segment_bytes == 2000000


def test_values_set_at_run_time_win_and_go_again() -> None:
    store = Store()
    config = Config({"log.retention.bytes": "1"})
    config.attach(store.configs)
    assert config.log_config(SomeTopic()).retention_bytes == 1
    for name, value in (("", 2), ("1", 3)):
        store["broker", name] = {"log.retention.bytes": str(value)}
        config.refresh()
        assert config.get_int("log.retention.bytes") == value
        assert config.log_config(SomeTopic()).retention_bytes == value
    store.clear()
    config.refresh()
    assert config.get_int("log.retention.bytes") == 1


def test_groups_take_from_the_broker_what_they_do_not_say_themselves() -> None:
    store = Store({("group", "g"): {"share.record.lock.duration.ms": "20000"}})
    config = Config({"group.share.record.lock.duration.ms": "40000"})
    assert config.group_int("g", "share.record.lock.duration.ms") == 40000
    config.attach(store.configs)
    assert config.group_int("g", "share.record.lock.duration.ms") == 20000
    assert config.group_int("other", "share.record.lock.duration.ms") == 40000
    assert config.group_value("g", "share.auto.offset.reset") == "latest"
    assert config.group_value("g", "share.renew.acknowledge.enable") == "true"


@pytest.mark.parametrize(
    ("overrides", "node_id"),
    [
        ({}, 1),
        ({"node.id": "0"}, 0),
        ({"broker.id": "7"}, 7),
        ({"broker.id": "7", "node.id": "7"}, 7),
        ({"broker.id": "-1", "node.id": "7"}, 7),
        ({"broker.id": "-1"}, 1),
    ],
)
def test_the_id_of_the_node(overrides: Mapping[str, str], node_id: int) -> None:
    config = Config(overrides)
    assert config.node_id == node_id
    assert config.get_int("node.id") == config.get_int("broker.id") == node_id
    assert config.without_effect == ()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"node.id": "1", "broker.id": "2"},
            "You must set `node.id` to the same value as `broker.id`.",
        ),
        (
            {"node.id": "-1"},
            "Invalid value -1 for configuration node.id: Value must be at least 0",
        ),
        (
            {"broker.id": "-2"},
            "Invalid value -2 for configuration node.id: Value must be at least 0",
        ),
        (
            {"node.id": "2147483648"},
            "Invalid value 2147483648 for configuration node.id: Not a number of type INT",
        ),
    ],
)
def test_an_id_that_no_node_can_have(overrides: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(overrides)
    assert str(refused.value) == message


def test_configs_of_a_broker_belong_to_its_id() -> None:
    store = Store({("broker", "0"): {"num.partitions": "5"}})
    zero, one = Config({"node.id": "0"}), Config()
    for config in (zero, one):
        config.attach(store.configs)
    assert [config.get_int("num.partitions") for config in (zero, one)] == [5, 1]


def test_internal_topics_are_made_as_configured() -> None:
    config = Config(
        {"offsets.topic.num.partitions": "3", "share.coordinator.state.topic.segment.bytes": "4096"}
    )
    partitions, configs = config.internal_topic("__consumer_offsets")
    assert (partitions, configs["cleanup.policy"], configs["segment.bytes"]) == (
        3,
        "compact",
        "104857600",
    )
    partitions, configs = config.internal_topic("__share_group_state")
    assert (partitions, configs["cleanup.policy"], configs["retention.ms"]) == (50, "delete", "-1")
    assert config.log_config(SomeTopic(configs)).segment_bytes == 4096
    assert config.check("topic", configs) is None


def test_what_a_group_has_set_counts_within_the_bounds_that_the_broker_has_now() -> None:
    low = {"share.heartbeat.interval.ms": "5000", "share.delivery.count.limit": "2"}
    high = {"share.heartbeat.interval.ms": "15000", "share.delivery.count.limit": "10"}
    config = Config(
        {
            "group.share.min.heartbeat.interval.ms": "6000",
            "group.share.heartbeat.interval.ms": "7000",
            "group.share.max.heartbeat.interval.ms": "8000",
            "group.share.min.delivery.count.limit": "4",
            "group.share.max.delivery.count.limit": "6",
        }
    )
    config.attach(Store({("group", "low"): low, ("group", "high"): high}).configs)
    assert [config.group_int("low", name) for name in low] == [6000, 4]
    assert [config.group_int("high", name) for name in high] == [8000, 6]
    assert len(list(config.warnings(["low"]))) == 2
    assert list(config.warnings(["none"])) == []
    # whatever is changed of it, the whole has to be within them again
    refusal = config.check("group", {**high, "share.isolation.level": "read_committed"})
    assert refusal is not None
    assert refusal.message == (
        "share.heartbeat.interval.ms must be in the range 6000 to 8000 inclusive."
    )
