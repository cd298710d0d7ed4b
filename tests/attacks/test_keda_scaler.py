"""The port of `headrace keda-scaler` under attack: KEDA is answered, whatever others do."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
from collections.abc import Collection, Iterator

import grpc
import psutil
import pytest

from headrace.cli.keda import collector, command, service
from headrace.cli.keda.collector import SHARE, Backlog, BacklogQuery, Backlogs
from headrace.client.config import read_config
from tests.cli.command import start
from tests.support import story

PATIENCE_S = 30.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Port:
    """A running scaler.

    :ivar address: where it listens
    """

    def __init__(self, *options: str, host: str = "127.0.0.1") -> None:
        self.process = start("keda-scaler", "--listen", f"{host}:0", *options)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().decode().split()[-1]

    @property
    def handles(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    def is_active(self, **metadata: str) -> bool:
        with grpc.insecure_channel(self.address) as channel:
            call = channel.unary_unary(
                f"/{service.SERVICE}/IsActive",
                service.ScaledObjectRef.SerializeToString,
                service.IsActiveResponse.FromString,
            )
            ref = service.ScaledObjectRef(scalerMetadata={"group": "g", **metadata})
            return bool(call(ref, timeout=PATIENCE_S, wait_for_ready=True).result)

    def code(self, **metadata: str) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as caught:
            self.is_active(**metadata)
        return caught.value.code()

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said
        return said.decode()


@contextlib.contextmanager
def running(*options: str, host: str = "127.0.0.1") -> Iterator[Port]:
    port = Port(*options, host=host)
    try:
        yield port
    finally:
        if port.process.poll() is None:
            port.stop()


@pytest.mark.parametrize("sent", [b"", PREFACE[:7], PREFACE], ids=["nothing", "part", "preface"])
def test_connections_are_bounded_and_make_room(bootstrap_servers: str, sent: bytes) -> None:
    with running("--bootstrap-server", bootstrap_servers) as port, contextlib.ExitStack() as stack:
        host, _, number = port.address.rpartition(":")
        before = port.handles
        for _ in range(2 * command.MAX_CONNECTIONS):
            sock = stack.enter_context(socket.create_connection((host, int(number))))
            with contextlib.suppress(OSError):
                sock.sendall(sent)
        assert port.handles - before <= command.MAX_CONNECTIONS + 20
        # Silent connections end by themselves, so that others have their turn.
        assert port.code() is grpc.StatusCode.UNAVAILABLE


def test_a_large_request_is_refused(bootstrap_servers: str) -> None:
    with running("--bootstrap-server", bootstrap_servers) as port:
        assert port.code(topics="t" * (1 << 20)) is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("name", ["group", "topics"])
def test_names_that_no_request_can_carry_are_refused(bootstrap_servers: str, name: str) -> None:
    """The request of a round has the names of all callers: it would fail for the others, too."""
    with running("--bootstrap-server", bootstrap_servers) as port:
        metadata = {"topics": "missing", name: "é" * 20_000}
        assert port.code(**metadata) is grpc.StatusCode.INVALID_ARGUMENT


def test_many_topics_are_refused(bootstrap_servers: str) -> None:
    with running("--bootstrap-server", bootstrap_servers) as port:
        topics = ",".join(f"t{number}" for number in range(101))
        assert port.code(topics=topics) is grpc.StatusCode.INVALID_ARGUMENT
        assert port.code(topics=topics.partition(",")[2]) is grpc.StatusCode.NOT_FOUND


@story
async def test_answers_to_callers_that_do_not_come_again_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def backlogs(_: object, __: object, queries: Collection[BacklogQuery]) -> Backlogs:
        return dict.fromkeys(queries, Backlog(1, 1))

    monkeypatch.setattr(collector, "backlogs", backlogs)
    monkeypatch.setattr(collector, "MAX_ANSWERS", 10)
    asked = collector.BacklogCollector(read_config({"bootstrap.servers": "127.0.0.1:1"}), 60.0)
    first = BacklogQuery("first", SHARE)
    for number in range(5):
        others = [BacklogQuery(f"{number}-{other}", SHARE) for other in range(9)]
        await asyncio.gather(*(asked.backlog(query, 0.0) for query in (first, *others)))
    assert len(asked._answers) <= 10
    assert first in asked._answers
    await asked.close()


def test_callers_name_no_cluster(bootstrap_servers: str) -> None:
    """They would have the scaler explore the network around it, or send credentials elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.1)
        with running("--bootstrap-server", bootstrap_servers) as port:
            servers = f"127.0.0.1:{elsewhere.getsockname()[1]}"
            for name, value in (("bootstrapServers", servers), ("commandConfig", "/etc/passwd")):
                metadata = {name: value, "topics": "missing"}
                assert port.code(**metadata) is grpc.StatusCode.INVALID_ARGUMENT
            assert port.code(topics="missing") is grpc.StatusCode.NOT_FOUND
        with pytest.raises(TimeoutError):
            elsewhere.accept()


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_port_for_everybody_is_warned_of(host: str, warns: bool) -> None:
    with running(host=host) as port:
        said = port.stop()
    assert bool(re.search("WARNING .* is open to other machines", said)) is warns, said
