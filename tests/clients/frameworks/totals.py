"""A quixstreams application: totals.py SERVERS TOPIC TOTALS GROUP STATE_DIRECTORY COUNT writes the
running total of each key to another topic, exactly once, and ends after COUNT records.
"""

import sys

from quixstreams import Application, State


def add(number: int, state: State) -> int:
    total = state.get("total", 0) + number
    state.set("total", total)
    return total


def main(servers: str, topic: str, totals: str, group: str, directory: str, count: str) -> None:
    app = Application(
        servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        commit_interval=0.5,
        consumer_extra_config={"heartbeat.interval.ms": 500},
        processing_guarantee="exactly-once",
        state_dir=directory,
    )
    numbers = app.dataframe(app.topic(topic, value_deserializer="json"))
    numbers = numbers.apply(add, stateful=True)
    numbers.to_topic(app.topic(totals, value_serializer="json"))
    app.run(count=int(count))


main(*sys.argv[1:])
