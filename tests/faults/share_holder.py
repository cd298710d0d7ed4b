"""A share consumer that takes records and holds them: `python share_holder.py BOOTSTRAP TOPIC
GROUP`.

It says how many it holds; after a line on stdin it accepts them, and says how many acceptances the
broker confirmed.
"""

from __future__ import annotations

import asyncio
import sys

from headrace.client import Acknowledgement, AcknowledgeType, RangeConsumer


async def main() -> None:
    bootstrap, topic, group = sys.argv[1:]
    async with RangeConsumer(bootstrap, group, [topic]) as consumer:
        while not (held := (await consumer.acquire(max_wait_ms=500)).ranges):
            pass
        times = {run.delivery_count for run in held}
        print(f"holds {sum(run.count for run in held)} delivered {times.pop()} times", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        accepted = await consumer.acknowledge(
            Acknowledgement(
                topic, run.partition, run.first_offset, run.last_offset, AcknowledgeType.ACCEPT
            )
            for run in held
        )
        print(
            f"accepted {sum(one.last_offset - one.first_offset + 1 for one in accepted)}",
            flush=True,
        )


if __name__ == "__main__":
    asyncio.run(main())
