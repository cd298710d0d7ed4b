"""An honest producer in a process of its own: ``python -m tests.attacks.honest BOOTSTRAP TOPIC``.

It produces one small batch every :data:`INTERVAL_S` until its standard input ends, and then prints
its latencies as JSON. It says ``ready`` when it has produced for the first time.
"""

from __future__ import annotations

import json
import select
import sys
import time

from tests.wire_client import Connection, batch

INTERVAL_S = 0.005
ANSWER_TIMEOUT_S = 120
REPORT_AT_MOST = 200_000


def produce_until_told(bootstrap_servers: str, topic: str) -> dict[str, object]:
    """Produce until the standard input ends; return latencies in ms and the errors that came."""
    latencies_ms: list[float] = []
    errors: list[str] = []
    client = Connection(bootstrap_servers, timeout_s=ANSWER_TIMEOUT_S, client_id="honest")
    records = batch([b"honest" * 16])
    client.produce(topic, records)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        started = time.perf_counter()
        try:
            code, _ = client.produce(topic, records)
        except (OSError, AssertionError) as error:
            errors.append(repr(error))
            break
        took = time.perf_counter() - started
        if code:
            errors.append(f"error code {code}")
        # A client that produced at fixed times would have waited in these places too.
        while took > 0 and len(latencies_ms) < REPORT_AT_MOST:
            latencies_ms.append(took * 1000)
            took -= INTERVAL_S
    return {"latencies_ms": latencies_ms, "errors": errors}


if __name__ == "__main__":
    print(json.dumps(produce_until_told(sys.argv[1], sys.argv[2])), flush=True)
