"""A hundred slow calls at once, with retries: python -m examples.slow_http_calls"""

import asyncio
import random
import time

import headrace

app = headrace.App()  # App("127.0.0.1:9092") for a broker that runs elsewhere
done = 0


@app.task(retry=headrace.Retry(5, first=0.2, on=ConnectionError), timeout=5, concurrency=100)
async def call(url: str) -> None:
    global done
    await asyncio.sleep(random.uniform(0.5, 1.5))  # await http.get(url) with your client
    if random.random() < 0.1:
        raise ConnectionError(f"{url} does not answer")
    done += 1


async def main() -> None:
    with app:
        await call.send_many(f"https://example.org/{number}" for number in range(300))
        worker, began_s = app.worker(), time.monotonic()
        work = asyncio.create_task(worker.run())
        while done < 300:
            await asyncio.sleep(0.1)
        print(f"300 calls of about a second took {time.monotonic() - began_s:.1f} s")
        worker.stop()
        await work


if __name__ == "__main__":
    asyncio.run(main())
