"""Records that fail hold nobody up, and end as dead letters: python -m examples.poison_records"""

import asyncio
from dataclasses import dataclass

import headrace

app = headrace.App()


@dataclass
class Order:
    number: int
    boxes: int


@app.task(retry=headrace.Retry(3, first=0.1))
async def pack(order: Order) -> None:
    if order.boxes < 0:
        raise headrace.Reject("a negative number of boxes")  # no use to try again
    print(f"order {order.number}: {12 // order.boxes} in each box")  # 0 boxes fail, three times


async def main() -> None:
    async with app.test(worker=True) as trial:  # a broker and a worker for as long as this block
        await pack.send_many([Order(1, 2), Order(2, 0), Order(3, -1), Order(4, 3)])
        await trial.drained()
        for letter in trial.dead_letters(pack):
            print(f"dead letter: {letter.arguments}, attempts: {letter.attempts}, {letter.reason}")


if __name__ == "__main__":
    asyncio.run(main())
