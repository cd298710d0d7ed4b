"""Attacks beside an honest producer: the growth of the broker's memory, and the producer's p99.

Each attack gets its own connections. The attacker leaves before the next attack begins.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from bench.measurements import Broker, Metric, Scale
from tests.attacks import harness
from tests.support import unique

MIB = 1 << 20

Attack = Callable[[Broker, Scale], contextlib.AbstractContextManager[None]]
"""Prepare the attack, and return it as a context manager: it attacks when it is entered."""


@contextlib.contextmanager
def _holding(broker: Broker, frames: bytes, connections: int, seconds: float) -> Iterator[None]:
    """Send the same bytes on each connection, and read nothing for some seconds."""
    with harness.crowd(broker.bootstrap_servers, connections, 64 * 1024) as sockets:
        for sock in sockets:
            sock.sendall(frames)
        time.sleep(seconds)
        yield


def _pipelined_fetches(broker: Broker, scale: Scale) -> contextlib.AbstractContextManager[None]:
    topic = _filled(broker, scale)
    return _holding(broker, harness.fetch(topic) * 80, 1, scale.attack_s)


def _pipelined_metadata(broker: Broker, scale: Scale) -> contextlib.AbstractContextManager[None]:
    harness.create_topics(broker.bootstrap_servers, scale.attack_topics)
    return _holding(broker, harness.metadata_of_all() * 1000, 1, scale.attack_s)


def _absent_readers(broker: Broker, scale: Scale) -> contextlib.AbstractContextManager[None]:
    topic = _filled(broker, scale)
    return _holding(broker, harness.fetch(topic), 100, scale.attack_s)


def _claims(broker: Broker, scale: Scale) -> contextlib.AbstractContextManager[None]:
    # More than Kafka's heap of 1 GiB would end the comparison.
    return _holding(broker, harness.claim(10 * MIB), 50, scale.attack_s)


def _filled(broker: Broker, scale: Scale) -> str:
    topic = unique("attacked")
    harness.fill(broker, topic, scale.attack_bytes)
    return topic


ATTACKS: Mapping[str, Attack] = {
    "80 pipelined fetches of 50 MB, nothing read": _pipelined_fetches,
    "1,000 pipelined requests for the metadata of all topics": _pipelined_metadata,
    "100 consumers that read nothing of 50 MB each": _absent_readers,
    "50 requests that claim 10 MiB": _claims,
}


def metrics(name: str) -> tuple[Metric, Metric]:
    """Return the metrics that :func:`measure` fills."""
    return (
        Metric(f"{name}: growth of memory", "MiB", None, True),
        Metric(f"{name}: an honest producer's p99", "ms", None, True),
    )


def measure(broker: Broker, scale: Scale, name: str) -> tuple[float, float]:
    """Attack a broker once; return the growth of its resident memory in MiB, and the p99 of the
    honest producer in milliseconds.
    """
    attack = ATTACKS[name](broker, scale)
    with harness.watching(broker) as watch, attack:
        pass
    return watch.grown_bytes / MIB, watch.honest.p99_ms
