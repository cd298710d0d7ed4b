"""`headrace lag show` against a broker."""

from __future__ import annotations

import json
import signal
import sys

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from headrace import Broker
from tests.cli.command import start
from tests.clients.confluent import PATIENCE_S, admin, consumer, create_topic, produce
from tests.clients.conftest import Run
from tests.support import unique, wait_until

COMMAND = "lag show"


@pytest.fixture
def team(bootstrap_servers: str) -> str:
    """The prefix of two groups, TEAM-a and TEAM-b, with lags 5 and 0 in topic TEAM of two
    partitions.
    """
    prefix = create_topic(bootstrap_servers, unique("team"), partitions=2)
    produce(bootstrap_servers, prefix, [b"x"] * 5, partition=0)
    for name, offset in (("a", 0), ("b", 5)):
        partitions = [TopicPartition(prefix, 0, offset), TopicPartition(prefix, 1, 0)]
        commit(bootstrap_servers, f"{prefix}-{name}", partitions)
    return prefix


def commit(bootstrap_servers: str, group_id: str, partitions: list[TopicPartition]) -> None:
    asked = ConsumerGroupTopicPartitions(group_id, partitions)
    admin(bootstrap_servers).alter_consumer_group_offsets([asked])[group_id].result(PATIENCE_S)


def test_a_line_per_group_and_topic_and_totals(run: Run, team: str) -> None:
    header, first, second, below = run("--groups-pattern", f"{team}-.*")
    assert header.split() == [
        "GROUP-ID",
        "GROUP-TYPE",
        "GROUP-STATE",
        "TOPIC",
        "PARTITION-COUNT",
        "MEMBER-COUNT",
        "LAG",
        "TIME-LAG",
    ]
    assert first.split()[:-2] == [f"{team}-a", "classic", "Empty", team, "2", "0", "5"]
    assert second.split() == [f"{team}-b", "classic", "Empty", team, "2", "0", "0", "0", "s"]
    assert below.startswith("2 groups, 4 partitions, 0 members, lag 5, time lag ")


def test_a_line_per_partition(run: Run, team: str) -> None:
    _, *rows, _ = run(f"{team}-a", f"{team}-b", "--partitions", "--no-time-lag")
    assert [row.split() for row in rows] == [
        [f"{team}-{name}", "classic", "Empty", team, number, *"--", position, end, lag, *"--"]
        for name, number, position, end, lag in (
            ("a", "0", "0", "5", "5"),
            ("a", "1", "0", "0", "0"),
            ("b", "0", "5", "5", "0"),
            ("b", "1", "0", "0", "0"),
        )
    ]


def test_the_totals_say_what_they_leave_out(run: Run, bootstrap_servers: str, team: str) -> None:
    group_id = f"{team}-c"
    with consumer(bootstrap_servers, group_id) as member:
        member.subscribe([team])
        wait_until(
            lambda: member.poll(0.1) and len(member.assignment()) == 2, PATIENCE_S, "an assignment"
        )
        _, row, below = wait_until(
            lambda: "unknown" in (lines := run(group_id))[-1] and lines,
            PATIENCE_S,
            "the assignment",
        )
    assert row.split()[3:8] == [team, "2", "1", "-", "-"], "one partition is empty"
    assert below == (
        "1 group, 2 partitions, 1 member, lag unknown, 1 partition whose lag is unknown"
    )


def test_json_has_all_that_is_known(run: Run, team: str) -> None:
    (row,) = json.loads("\n".join(run(f"{team}-a", "--topic", team, "-o", "json")))[:1]
    assert (row["committed_offset"], row["end_offset"], row["lag"], row["group_type"]) == (
        0,
        5,
        5,
        "classic",
    )
    assert 0 <= row["time_lag_ms"] < 600_000 and row["member_id"] is None
    assert run(f"{team}-a", "--type", "share", "-o", "json", status=1)[0] == "[]"


def test_what_is_not_there_is_a_failure_after_the_rest_was_shown(run: Run, team: str) -> None:
    *_, below, complaint = run(f"{team}-a", f"{team}-c", status=1)
    assert below.startswith("1 group, ")
    missing = f"group '{team}-c' does not exist: correct its id or type"
    assert complaint == f"headrace lag show: {missing}"


@pytest.mark.parametrize("on_terminal", [False, True])
def test_what_ids_of_groups_may_hold_is_shown_and_not_obeyed(
    run: Run, bootstrap_servers: str, on_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(bootstrap_servers, unique("t"))
    odd = f"[/b]\x1b[1m\n日本:{topic}:"
    asked = ConsumerGroupTopicPartitions(odd, [TopicPartition(topic, 0, 0)])
    admin(bootstrap_servers).alter_consumer_group_offsets([asked])[odd].result(PATIENCE_S)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal, raising=False)
    lines = run(odd, "--no-time-lag")
    (shown,) = (line.split() for line in lines if "日本" in line)
    assert shown == [rf"[/b]\x1b[1m\n日本:{topic}:", "classic", "Empty", topic, "1", "0", "0", "-"]
    *_, complaint = run(odd + "\n", status=1)
    assert complaint.startswith(r"headrace lag show: group '[/b]\x1b[1m\n日本")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--type", "queue"), "argument --type: 'queue' is not a list of types: classic, "),
        (("g", "--groups-pattern", "x"), "name the groups or give --groups-pattern, not both"),
        (("--topics-pattern", "("), "argument --topics-pattern: '(' is not a regular expression"),
    ],
)
def test_bad_usage(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    (said,) = run(*arguments, status=2)
    assert complaint in said


def test_watching_goes_on_when_the_broker_comes_back() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        watching = start("top", "--every", "0.1", "--bootstrap-server", servers)
        assert watching.stdout is not None and watching.stderr is not None
        assert watching.stdout.read(4096)
    while b"the last snapshot is shown: " not in (line := watching.stderr.readline()):
        assert line
    with Broker(port=int(servers.rpartition(":")[2])):
        create_topic(servers, "t")
        commit(servers, "back", [TopicPartition("t", 0, 0)])
        seen = b""
        while b"back" not in seen:
            read = watching.stdout.read(4096)
            assert read
            seen += read
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 0
    watching.stdout.close()
    watching.stderr.close()


def test_watching_goes_on_until_it_is_interrupted(bootstrap_servers: str, team: str) -> None:
    watching = start("top", f"{team}-a", "--every", "0.1", "--bootstrap-server", bootstrap_servers)
    assert watching.stdout is not None
    shown = b""
    while shown.count(b"GROUP-ID ") < 3:
        read = watching.stdout.read(4096)
        assert read, watching.stderr
        shown += read
    watching.send_signal(signal.SIGINT)
    assert watching.wait(PATIENCE_S) == 0
