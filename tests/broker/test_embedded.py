"""A broker inside this process: it starts, serves, stops, and finds its data directory again."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import headrace
from headrace.broker.embedded import LOGGERS
from headrace.protocol.errors import ConfigError
from tests.support import ROOT

pytestmark = pytest.mark.broker


def values(servers: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition("topic", 0, 0)])
    found = [message.value() for message in consumer.consume(count, timeout=10)]
    consumer.close()
    return found


def test_records_are_found_again_on_the_data_directory(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path) as broker:
        broker.produce("topic", [b"a", b"b"])
    with headrace.Broker(tmp_path) as broker:
        broker.produce("topic", [b"c"])
        assert values(broker.bootstrap_servers, 3) == [b"a", b"b", b"c"]


def test_the_data_directory_takes_precedence_over_log_dirs(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path / "mine", {"log.dirs": str(tmp_path / "configured")}):
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_records_that_are_not_written_are_an_error(tmp_path: Path) -> None:
    broker = headrace.Broker(tmp_path, {"message.max.bytes": 1000})
    with pytest.raises(RuntimeError, match="not running"):
        broker.produce("topic", [b"a"])
    with broker:
        broker.produce("topic", [None, "a"])
        with pytest.raises(RuntimeError, match=r"2 records were not written: .*too large"):
            broker.produce("topic", [bytes(2000)] * 2)


def test_an_ephemeral_broker_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with headrace.Broker() as broker:
        broker.produce("topic", [b"a"])
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_two_brokers_side_by_side_share_nothing() -> None:
    with headrace.Broker() as one, headrace.Broker() as other:
        one.produce("topic", [b"one"])
        other.produce("topic", [b"other"])
        assert values(one.bootstrap_servers, 1) == [b"one"]
        assert values(other.bootstrap_servers, 1) == [b"other"]


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with headrace.Broker(tmp_path) as broker:
        with pytest.raises(headrace.DirectoryInUse, match=broker.bootstrap_servers):
            headrace.Broker(tmp_path).start()
        broker.produce("topic", [b"a"])


def test_a_port_in_use_is_an_os_error_and_leaves_nothing_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = headrace.Broker(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            broker.start()
    with broker:
        broker.produce("topic", [b"a"])


def test_an_unknown_config_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        headrace.Broker(config={"num.partition": 3})


def test_before_start_and_after_stop_there_is_no_address() -> None:
    broker = headrace.Broker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers
    broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


def test_the_fixture_is_an_empty_broker(headrace_broker: headrace.Broker) -> None:
    headrace_broker.produce("topic", [b"a"])
    assert values(headrace_broker.bootstrap_servers, 1) == [b"a"]


def test_pytest_does_not_rewrite_the_broker(headrace_broker: headrace.Broker) -> None:
    spec = sys.modules["headrace.broker.broker"].__spec__
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)


def test_a_broker_that_has_lost_its_directory_can_be_stopped(tmp_path: Path) -> None:
    broker = headrace.Broker(tmp_path / "data").start()
    thread = broker._thread
    assert thread is not None
    shutil.rmtree(tmp_path / "data")
    thread.join(60)
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


def test_a_user_that_cannot_be_added_leaves_the_directory_free(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        headrace.Broker(tmp_path, users={"ann": "\udcff"}).start()
    with headrace.Broker(tmp_path) as broker:
        broker.produce("topic", [b"a"])


def test_a_program_that_configured_no_logging_reads_nothing() -> None:
    """Not of foreign bytes on the port, nor of delays under load."""
    program = """if True:
        import socket
        import headrace
        from headrace.broker.loop_watch import Holder, LoopWatch
        from headrace.net.metrics import LoopMetrics

        with headrace.Broker() as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            for foreign in (b"GET / HTTP/1.1\\r\\n\\r\\n", bytes(20), b"\\xff" * 20):
                with socket.create_connection((host, int(port))) as client:
                    client.sendall(foreign)
                    assert client.recv(1) == b""
            LoopWatch(LoopMetrics())._held(Holder("ShareFetch", "rdkafka"), 513)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_logger_of_the_broker_is_quiet_in_such_a_program() -> None:
    folders = ("broker", "coordinators", "handlers", "log")
    files = [file for folder in folders for file in (ROOT / "src/headrace" / folder).rglob("*.py")]
    names = {
        name
        for file in files
        for name in re.findall(r"get_logger\(\"headrace\.(\w+)", file.read_text())
    }
    assert names <= set(LOGGERS)
