"""Our own clients log in with OAUTHBEARER: tokens from an endpoint, a file and a callback,
under the names of librdkafka and of Kafka's Java clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

import headrace
from headrace import ShareConsumer
from headrace.admin import AdminClient
from headrace.cli.main import main
from headrace.client import (
    AuthenticationFailed,
    ClientError,
    Connection,
    ConnectionFailed,
    OrderedConsumer,
)
from headrace.client.config import check_access, read_config
from headrace.client.java_properties import from_java
from headrace.client.sasl import ALLOWED_URLS
from headrace.spark.option_parsing import UserOptions
from headrace.spark.reader.log_reader import read
from headrace.spark.reader.ranges import OffsetRange
from tests.security.oauth import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    key_set,
    token,
    token_endpoint,
)
from tests.support import free_port_pair, story, unique, write_properties
from tests.throwaway_ca import ThrowawayCA

pytestmark = pytest.mark.broker

HANDLERS = "org.apache.kafka.common.security.oauthbearer"
TOPIC = "orders"
Config = dict[str, Any]


class Provider(NamedTuple):
    """A broker that takes tokens on two listeners, and an OAuth provider.

    :ivar https: the endpoint with TLS
    """

    broker: headrace.Broker
    folder: Path
    endpoint: str
    https: str

    def config(self) -> Config:
        return {
            "log_level": 0,
            "bootstrap.servers": self.broker.listeners["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
        }

    def oidc(self, **changes: str) -> Config:
        given = {
            "method": "oidc",
            "token.endpoint.url": self.endpoint,
            "client.id": CLIENT_ID,
            "client.secret": CLIENT_SECRET,
        } | {name.replace("_", "."): value for name, value in changes.items()}
        return {f"sasl.oauthbearer.{name}": value for name, value in given.items()}

    def file(self, text: str) -> str:
        path = self.folder / "a token"
        path.write_text(text)
        return path.as_uri()


@pytest.fixture(autouse=True)
def allowed(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the files that clients read tokens from."""
    urls = (provider.folder / "a token").as_uri(), "file:///missing"
    monkeypatch.setenv(ALLOWED_URLS, ",".join(urls))


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    folder = tmp_path_factory.mktemp("provider")
    ca = ThrowawayCA(folder)
    ca.issue("endpoint")
    config: dict[str, object] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": key_set(folder),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.allow.unverified.issuer": True,
        "group.initial.rebalance.delay.ms": 0,
    }
    with (
        headrace.Broker(config=config) as broker,
        token_endpoint() as endpoint,
        token_endpoint(folder / "endpoint.both") as https,
    ):
        made = Provider(broker, folder, endpoint, https)
        with AdminClient(made.config() | made.oidc()) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        producer = Producer(made.config() | made.oidc())
        for number in range(10):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(30) == 0
        yield made


def _callback(_: str) -> tuple[str, float]:
    return token(), time.time() + 600


def _javas_endpoint(provider: Provider) -> Config:
    return {
        "sasl.jaas.config": f"{HANDLERS}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{HANDLERS}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": provider.endpoint,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
    }


SOURCES: Mapping[str, Callable[[Provider], Config]] = {
    "endpoint": lambda provider: provider.oidc(scope="kafka"),
    "endpoint with TLS": lambda provider: (
        provider.oidc(token_endpoint_url=provider.https)
        | {"https.ca.location": str(provider.folder / "ca.pem")}
    ),
    "endpoint in Java's names": _javas_endpoint,
    "file": lambda provider: {"sasl.oauthbearer.token.endpoint.url": provider.file(token())},
    "callback": lambda _: {"oauth_cb": _callback},
}
sources = pytest.mark.parametrize("source", SOURCES)


@sources
def test_clients(
    provider: Provider,
    source: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Connections of our own and of librdkafka, with one configuration."""
    given = provider.config() | SOURCES[source](provider)
    config = from_java(given)
    with AdminClient(config) as admin:
        assert admin.list_all_groups().result(30).errors == []
        assert TOPIC in admin.list_topics(timeout=30).topics
    with OrderedConsumer(config | {"group.id": unique("g")}, [TOPIC]) as consumer:
        record = consumer.poll(30)
        assert record is not None
        assert record.value() == b"0"

    async def join() -> int:
        conf = {**config, "group.id": unique("g")}
        async with ShareConsumer(conf, [TOPIC]) as queue:
            await queue.poll()
            return len(queue.assignment)

    assert asyncio.run(join()) == 1
    if source == "callback":
        return
    options = UserOptions({f"kafka.{name}": value for name, value in given.items()}, ()).kafka()
    options.check(lambda cluster: cluster.metadata())
    assert rows(options) == 10
    file = write_properties(tmp_path / "client.properties", given)
    servers = "--bootstrap-server", config["bootstrap.servers"]
    for command in ("groups list", f"topics describe {TOPIC}"):
        assert main([*command.split(), *servers, "--command-config", str(file)]) == 0
    assert TOPIC in capsys.readouterr().out


def rows(options: Any) -> int:
    """Read the topic as a task on an executor does, and return the number of rows."""
    found = read(options, [OffsetRange(TOPIC, 0, 0, 10)])
    return sum(batch.num_rows for batch in found)


@story
async def test_an_asynchronous_callback(provider: Provider) -> None:
    """It runs on the event loop of the client, and gets the configured text."""
    calls: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def fetch(text: str) -> tuple[str, float]:
        calls.append((text, asyncio.get_running_loop()))
        return _callback(text)

    config = provider.config() | {"oauth_cb": fetch, "sasl.oauthbearer.config": "text"}
    async with read_config(config).cluster() as cluster:
        await asyncio.gather(*(cluster.connection(purpose=str(n)) for n in range(5)))
        assert calls == [("text", asyncio.get_running_loop())], "one token for all"


@story
async def test_a_session_is_renewed(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login ends with its token. The client logs in again before that, once, on the same
    connection, while other requests wait.
    """
    logins: list[Connection] = []
    log_in = Connection._log_in

    async def count(self: Connection, sasl: Any, timeout_ms: int) -> None:
        logins.append(self)
        await log_in(self, sasl, timeout_ms)

    monkeypatch.setattr(Connection, "_log_in", count)
    config = provider.config() | provider.oidc()
    loop = asyncio.get_running_loop()
    async with read_config(config).cluster() as cluster:
        opened = await cluster.connection()
        assert opened._log_in_at_s is not None
        assert 400 < opened._log_in_at_s - loop.time() < 570
        opened._log_in_at_s = loop.time()
        await asyncio.gather(*(cluster.metadata() for _ in range(5)))
        assert logins == [opened, opened]
        assert opened.is_open


@story
async def test_a_share_session_outlives_a_login(provider: Provider) -> None:
    config = provider.config() | provider.oidc()
    loop = asyncio.get_running_loop()
    async with ShareConsumer({**config, "group.id": unique("g")}, [TOPIC]) as queue:
        assert await queue.poll() == []
        cluster = queue._ranges.cluster
        opened = dict(cluster._connections)
        for one in opened.values():
            one._log_in_at_s = due_s = loop.time()
        producer = Producer(config)
        producer.produce(TOPIC, b"new")
        assert await asyncio.to_thread(producer.flush, 30) == 0
        assert [record.value for record in await queue.poll(timeout=30)] == [b"new"]
        assert cluster._connections == opened
        renewed = [key for key, one in opened.items() if one._log_in_at_s > due_s + 60]
        assert "share" in [purpose for _, purpose in renewed]


@story
async def test_a_session_that_cannot_be_renewed(provider: Provider) -> None:
    """The error is that of the login, and the connection is closed."""
    url = provider.file(token())
    config = provider.config() | {"sasl.oauthbearer.token.endpoint.url": url}
    async with read_config(from_java(config)).cluster() as cluster:
        opened = await cluster.connection()
        provider.file(token(audience="others"))
        opened._log_in_at_s = asyncio.get_running_loop().time()
        with pytest.raises(AuthenticationFailed, match="refuses the token of 'ann'"):
            await cluster.metadata()
        assert not opened.is_open


MISTAKES: Mapping[str, tuple[Callable[[Provider], Config], type[ClientError], str]] = {
    "wrong secret": (
        lambda provider: provider.oidc(client_secret="guess"),
        AuthenticationFailed,
        "/token refuses the client 'a-client': invalid_client: check sasl.oauthbearer.client.id, "
        "sasl.oauthbearer.client.secret and sasl.oauthbearer.scope",
    ),
    "no endpoint": (
        lambda provider: provider.oidc(token_endpoint_url=f"http://127.0.0.1:{free_port_pair()}/x"),
        ConnectionFailed,
        "/x does not answer with a token: Connection refused: check "
        "sasl.oauthbearer.token.endpoint.url",
    ),
    "redirect": (
        lambda provider: provider.oidc(
            token_endpoint_url=provider.endpoint.replace("/token", "/moved")
        ),
        ConnectionFailed,
        "/moved does not answer with a token: HTTP status 302",
    ),
    "untrusted endpoint": (
        lambda provider: provider.oidc(token_endpoint_url=provider.https),
        AuthenticationFailed,
        "set https.ca.location to the certificate of the authority that has signed it",
    ),
    "other audience": (
        lambda provider: provider.oidc(scope="other"),
        AuthenticationFailed,
        'refuses the token of \'ann\': {"status":"invalid_token"}: check its issuer, audience, '
        "scope and expiry, and whether the broker has its key",
    ),
    "missing file": (
        lambda _: {"sasl.oauthbearer.token.endpoint.url": "file:///missing"},
        AuthenticationFailed,
        "the token file /missing cannot be read: No such file or directory: check "
        "sasl.oauthbearer.token.endpoint.url",
    ),
    "other file": (
        lambda _: {"sasl.oauthbearer.token.endpoint.url": "file:///etc/hostname"},
        AuthenticationFailed,
        "the token file /etc/hostname may not be read: to allow it, set the environment variable "
        f"{ALLOWED_URLS} to file:///etc/hostname",
    ),
    "failing callback": (
        lambda _: {"oauth_cb": lambda _: 1 / 0},
        AuthenticationFailed,
        "oauth_cb fails: ZeroDivisionError: division by zero",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(provider: Provider, mistake: str) -> None:
    """Errors tell apart the endpoint, the client's credentials, and the token."""
    change, kind, text = MISTAKES[mistake]
    config = from_java(provider.config() | change(provider))
    with pytest.raises(kind) as refused:
        asyncio.run(check_access(read_config(config)))
    assert text in str(refused.value)
    assert CLIENT_SECRET not in str(refused.value)
    with pytest.raises(KafkaException) as failed, AdminClient(config) as admin:
        admin.list_all_groups(request_timeout=1).result(30)
    assert text in failed.value.args[0].str()
