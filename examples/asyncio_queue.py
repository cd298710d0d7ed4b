"""Four coroutines share the records of a topic: python -m examples.asyncio_queue"""

import asyncio
import random

import headrace


async def pack(name: str, queue: headrace.ShareConsumer) -> None:
    async for record in queue:
        await asyncio.sleep(random.uniform(0, 0.2))  # its lock is renewed for as long as this takes
        print(f"{name} packs {record.value.decode()}, delivery {record.delivery_count}")
        if random.random() < 0.1:
            await queue.release(record, delay=0.5)  # somebody gets it again
        else:
            await queue.accept(record)


async def main() -> None:
    with headrace.Broker() as broker:
        broker.produce("orders", [f"order {number}" for number in range(40)])
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "packers"}
        async with headrace.ShareConsumer(conf, ["orders"], start="earliest") as queue:
            names = ("Ann", "Bob", "Cid", "Dee")
            packers = [asyncio.create_task(pack(name, queue)) for name in names]
            await asyncio.to_thread(broker.wait_until_drained, "packers")
            print(f"{queue.held} records are left")
        await asyncio.gather(*packers)


if __name__ == "__main__":
    asyncio.run(main())
