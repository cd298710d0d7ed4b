"""Which clusters a caller of `headrace keda-scaler` may have it connect to. Needs no broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.cli.keda import clusters as module
from headrace.cli.keda.clusters import Clusters
from headrace.cli.keda.collector import BacklogCollector
from headrace.cli.keda.scaled_object import InvalidMetadata, parse
from headrace.client.errors import ConnectionFailed
from tests.support import story

OWN = "127.0.0.1:9"


def clusters(folder: Path | None = None, *allowed: str) -> Clusters:
    return Clusters(
        {"bootstrap.servers": OWN},
        folder,
        allowed=allowed,
        interval_s=60,
        keep_s=60,
        timeout_ms=60_000,
    )


async def opened(made: Clusters, **metadata: str) -> BacklogCollector:
    return await made.collector(parse({"group": "g", **metadata}))


async def refusal(made: Clusters, **metadata: str) -> str:
    with pytest.raises(InvalidMetadata) as caught:
        await opened(made, **metadata)
    return str(caught.value)


@story
async def test_callers_choose_from_the_clusters_of_the_operator() -> None:
    made = clusters(None, "a:1", "b:1,b:2")
    own = await opened(made)
    assert await opened(made, bootstrapServers=OWN) is own
    others = [await opened(made, bootstrapServers=servers) for servers in ("a:1", "b:1,b:2")]
    assert len({own, *others}) == 3
    for servers in ("127.0.0.1:1", "b:1", "b:2,b:1", "a:1,127.0.0.1:1", " a:1", "no"):
        assert "--allow-bootstrap" in await refusal(made, bootstrapServers=servers)
    await made.close()


@story
async def test_all_files_that_cannot_be_used_are_refused_in_the_same_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller learns neither which files there are, nor what is in them."""
    texts = {
        "without": "security.protocol=PLAINTEXT\n",
        "broken": "sasl.password=TOPSECRET\\users\n",
        "unknown": "bootstrap.servers=a:1\nsasl.password.file=TOPSECRET\n",
        "mechanism": "bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    made = clusters(tmp_path)
    for name in (*texts, "folder", "missing"):
        assert await refusal(made, commandConfig=name) == (
            f"commandConfig '{name}' cannot be used: the scaler's log has the reason"
        )
    assert "without does not set bootstrap.servers" in caplog.text
    await made.close()


@story
async def test_clusters_that_never_answered_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in use that have answered stay; the scaler's own always has a place."""
    monkeypatch.setattr(module, "MAX_CLUSTERS", 2)
    made = clusters(None, "a:1", "b:1", "c:1", "d:1")
    first, second = [await opened(made, bootstrapServers=name) for name in ("a:1", "b:1")]
    first.has_answered = True
    third = await opened(made, bootstrapServers="c:1")
    assert await opened(made, bootstrapServers="a:1") is first
    assert await opened(made, bootstrapServers="c:1") is third
    with pytest.raises(ConnectionFailed):
        await second.backlog(parse({"group": "g"}).query)
    third.has_answered = True
    assert await refusal(made, bootstrapServers="d:1") == "more than 2 clusters are in use"
    own = await opened(made)
    third.used_s -= module.UNUSED_S + 1
    await opened(made, bootstrapServers="d:1")
    assert await opened(made) is own
    await made.close()


@story
async def test_calls_to_a_cluster_that_makes_room_end(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = await asyncio.start_server(lambda reader, writer: reader.read(), "127.0.0.1", 0)
    silent = "{}:{}".format(*listener.sockets[0].getsockname())
    monkeypatch.setattr(module, "MAX_CLUSTERS", 1)
    made = clusters(None, silent, "a:1")
    collector = await opened(made, bootstrapServers=silent)
    query = parse({"group": "g"}).query
    stream = collector.watch(query)
    calls = [asyncio.ensure_future(collector.backlog(query)), asyncio.ensure_future(anext(stream))]
    await asyncio.sleep(0)
    await opened(made, bootstrapServers="a:1")
    for call in calls:
        with pytest.raises(ConnectionFailed):
            await call
    await made.close()
    listener.close()
