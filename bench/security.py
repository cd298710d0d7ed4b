"""Security: TLS and logins beside Apache Kafka, ACLs beside headrace without them, and the time of
decisions by ACLs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench import clients
from bench.measurements import Broker, Metric, Scale, admin, filled_topic, share_consume, topic
from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import Acl, PatternType, Permission
from headrace.security.acls import ResourceType as Resource
from headrace.security.authorizer import Authorizer
from tests.peer import KafkaPeer
from tests.security import crowds
from tests.support import HeadraceProcess, free_port_pair
from tests.throwaway_ca import ThrowawayCA

CIPHER = "TLS_AES_256_GCM_SHA384"
TLS, SASL = "SSL", "SASL_PLAINTEXT"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

TLS_METRICS = (
    Metric(f"produce with TLS ({CIPHER}), Java, 1 KiB records, acks=all", "MiB/s", 1.0),
    Metric(f"consume with TLS ({CIPHER}), Java, 1 KiB", "MiB/s", 1.0),
)
LOGIN_METRICS = (
    Metric("SCRAM-SHA-256 logins, four clients at a time", "logins/s"),
    Metric("the longest answer to another client meanwhile", "ms", None, True),
)

ACLS_KEEP = 0.97
"""The part of the speed without ACLs that is wanted with them."""
OTHER_ACLS = 1000
"""ACLs of other clients, beside those that the measuring clients need."""
DECISION_ACLS, DECISIONS = 100_000, 1000
CACHED_US, UNCACHED_US = 5, 100


# Beside Apache Kafka ------------------------------------------------------------------------------


class Secured:
    """A broker with listeners for TLS and for logins, beside the plain one.

    :ivar addresses: of the listeners by name, when it has started
    :param client: a file with the configs of a Java client with TLS
    """

    def __init__(self, broker: Broker, addresses: dict[str, str], client: Path) -> None:
        self._broker = broker
        self.addresses = addresses
        self.client = client

    @property
    def bootstrap_servers(self) -> str:
        """The plain listener."""
        return str(self._broker.bootstrap_servers)

    def start(self) -> None:
        """Start it, and create the user."""
        self._broker.start()
        if isinstance(self._broker, HeadraceProcess):
            self.addresses |= {name: self._broker.address(name) for name in (TLS, SASL)}
        credential = UserScramCredentialUpsertion(
            crowds.USER,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096),
            crowds.PASSWORD.encode(),
        )
        created = admin(self.bootstrap_servers).alter_user_scram_credentials([credential])
        created[crowds.USER].result(60)

    def stop(self) -> None:
        """Stop it."""
        self._broker.stop()


def brokers(directory: Path, configs: Mapping[str, str]) -> dict[str, Secured]:
    """Return a new Kafka and a new headrace with the same certificate, not started."""
    directory.mkdir()
    ca = ThrowawayCA(directory)
    store = {
        **configs,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(ca.issue("broker").both),
        "sasl.enabled.mechanisms": crowds.MECHANISM,
    }
    headrace = HeadraceProcess(directory / "headrace", store)
    listen = (word for name in (TLS, SASL) for word in ("--listen", f"{name}://127.0.0.1:0"))
    headrace.command = (*HeadraceProcess.command, *listen)
    kafka = KafkaPeer(directory / "kafka", store)
    port = free_port_pair(kafka.port)
    addresses = {TLS: f"127.0.0.1:{port}", SASL: f"127.0.0.1:{port + 1}"}
    of_clients = {"PLAINTEXT": kafka.bootstrap_servers, **addresses}
    advertised = ",".join(f"{name}://{at}" for name, at in of_clients.items())
    kafka.configs |= {
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{kafka.port + 1}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in of_clients)
        + ",CONTROLLER:PLAINTEXT",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM,
    }
    client = directory / "client.properties"
    client.write_text(
        "security.protocol=SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={ca.certificate}\n"
        f"ssl.cipher.suites={CIPHER}\n"
    )
    return {"kafka": Secured(kafka, addresses, client), "headrace": Secured(headrace, {}, client)}


def tls(broker: Secured, scale: Scale) -> tuple[float, float]:
    """Produce and consume with TLS; return MiB/s of each."""
    at, records = broker.addresses[TLS], scale.large_records
    with topic(broker) as name:
        produced = clients.java_produce(at, name, records, 1024, broker.client)
    filled = filled_topic(broker.bootstrap_servers, records)
    return produced, clients.java_consume(at, filled, records, broker.client)


def logins(broker: Secured, scale: Scale) -> tuple[float, float]:
    """Log in often; return logins a second, and the longest answer to another client in ms."""
    seen = crowds.worst_meanwhile(
        broker.bootstrap_servers, "log-in", broker.addresses[SASL], scale.logins
    )
    return scale.logins / seen.seconds, seen.worst_s * 1000


# headrace alone -----------------------------------------------------------------------------------


def acls_beside_none(directory: Path, scale: Scale, pairs: int = 3) -> dict[str, float]:
    """Produce and share-consume with ACLs and without, in turns; return how many times as fast it
    is with them.
    """
    with_acls = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    common = {
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
    }
    rates: dict[str, dict[str, list[float]]] = {"produce": {}, "share-consume": {}}
    with (
        HeadraceProcess(directory / "with", {**common, **with_acls}) as with_them,
        HeadraceProcess(directory / "without", common) as without,
    ):
        _create_acls(with_them)
        for turn in range(pairs + 1):
            for kind, broker in (("without", without), ("with", with_them)):
                with topic(broker) as name:
                    at, records = broker.bootstrap_servers, scale.large_records
                    produced = clients.java_produce(at, name, records, 1024)
                (consumed,) = share_consume(broker, scale, consumers=1)
                if turn:  # the first one warms up
                    rates["produce"].setdefault(kind, []).append(produced)
                    rates["share-consume"].setdefault(kind, []).append(consumed)
    return {what: median(one["with"]) / median(one["without"]) for what, one in rates.items()}


def _create_acls(broker: Broker) -> None:
    """Allow the measuring clients what they do, and others something."""
    patterns = [(kind, "bench", "User:ANONYMOUS") for kind in (ResourceType.TOPIC,)]
    patterns += [(ResourceType.GROUP, one, "User:ANONYMOUS") for one in ("bench", "perf-")]
    patterns += [(ResourceType.TOPIC, f"other-{n}", f"User:{n}") for n in range(OTHER_ACLS)]
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            principal,
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name, principal in patterns
    ]
    for created in admin(broker.bootstrap_servers).create_acls(bindings).values():
        created.result(60)


def decision_us() -> tuple[float, float]:
    """Return the microseconds of CPU time of a decision by many ACLs: cached, and uncached.

    There are prefixes of many lengths, so that an uncached decision looks often.
    """
    authorizer = Authorizer()
    authorizer.add(
        Acl(
            Resource.TOPIC,
            f"{number % 240 * 'x'}{number}",
            PatternType.PREFIXED if number % 3 else PatternType.LITERAL,
            f"User:{number % 1000}",
            "*",
            Operation.READ if number % 2 else Operation.WRITE,
            Permission.DENY if number % 7 == 0 else Permission.ALLOW,
        )
        for number in range(DECISION_ACLS)
    )
    names = [f"{'x' * 200}{number}" for number in range(DECISIONS)]

    def each_us() -> float:
        started = time.process_time()
        for name in names:
            authorizer.allows("User:5", "127.0.0.1", Operation.READ, Resource.TOPIC, name)
        return (time.process_time() - started) / DECISIONS * 1e6

    uncached = each_us()
    return min(each_us() for _ in range(5)), uncached
