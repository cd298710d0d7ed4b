"""Applications of FastStream and quixstreams, in an environment of their own: quixstreams wants
an older confluent-kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from tests.clients.confluent import PATIENCE_S, consumer, create_topic, take
from tests.clients.toolchains import FOLDER, kept, run
from tests.support import ROOT, unique

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMS = FOLDER / "frameworks"


def run_program(program: str, *arguments: str) -> None:
    requirements = PROGRAMS / "requirements.txt"

    def install(folder: Path) -> None:
        run([ROOT / "scripts/make-venv", folder])
        pip = [folder / "bin/python", "-m", "pip", "install", "--disable-pip-version-check"]
        run([*pip, "--quiet", "-r", requirements], 600)

    python = kept("frameworks", [requirements], install) / "bin/python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run([python, PROGRAMS / program, *arguments], env=environment)


def produce_numbers(bootstrap_servers: str, topic: str, numbers: Iterable[int]) -> None:
    """Write numbers as JSON, the odd ones with another key than the even ones."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in numbers:
        producer.produce(topic, b"%d" % number, b"odd" if number % 2 else b"even")
    assert producer.flush(PATIENCE_S) == 0


def records(bootstrap_servers: str, topic: str, count: int) -> list[Message]:
    """Return the first records of partition 0 for a read_committed consumer."""
    with consumer(bootstrap_servers, unique("reader")) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        return take(reader, count)


@pytest.mark.parametrize("module", ["kafka", "confluent"])
def test_faststream(bootstrap_servers: str, topic_name: str, group_id: str, module: str) -> None:
    """An application consumes and publishes; the next one goes on from what the first committed."""
    create_topic(bootstrap_servers, topic_name)
    doubles = create_topic(bootstrap_servers, unique("doubles"))
    for numbers in (range(10), range(10, 15)):
        produce_numbers(bootstrap_servers, topic_name, numbers)
        arguments = (module, bootstrap_servers, topic_name, doubles, group_id, str(len(numbers)))
        run_program("double.py", *arguments)
    written = records(bootstrap_servers, doubles, 15)
    assert [int(message.value()) for message in written] == [2 * number for number in range(15)]
    assert {message.key() for message in written} == {b"key"}
    assert ("from", topic_name.encode()) in written[0].headers()


def test_quixstreams(
    tmp_path: Path, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    """Totals go on after a restart without the local state, which comes back from its changelog."""
    create_topic(bootstrap_servers, topic_name)
    totals = unique("totals")
    for run_number, numbers in enumerate((range(10), range(10, 14))):
        produce_numbers(bootstrap_servers, topic_name, numbers)
        state = str(tmp_path / str(run_number))
        arguments = (bootstrap_servers, topic_name, totals, group_id, state, str(len(numbers)))
        run_program("totals.py", *arguments)
    expected: list[int] = []
    for number in range(14):
        expected.append(number if number < 2 else expected[number - 2] + number)
    written = records(bootstrap_servers, totals, 14)
    assert [int(message.value()) for message in written] == expected
