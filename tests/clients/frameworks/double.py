"""A FastStream application: double.py kafka|confluent SERVERS TOPIC DOUBLES GROUP COUNT writes
twice each number of a topic to another, and ends after COUNT numbers.
"""

import asyncio
import importlib
import sys

from faststream import AckPolicy, FastStream


async def main(module: str, servers: str, topic: str, doubles: str, group: str, count: str) -> None:
    broker = importlib.import_module(f"faststream.{module}").KafkaBroker(
        servers, graceful_timeout=30
    )
    app = FastStream(broker)
    left = int(count)

    @broker.publisher(doubles, key=b"key", headers={"from": topic})
    @broker.subscriber(
        topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
    )
    async def double(number: int) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            app.exit()
        return 2 * number

    await app.run()


asyncio.run(main(*sys.argv[1:]))
