"""The whole broker under simulated faults: logs, groups, offsets, transactions, compaction,
retention, share groups and the catalog.

Clients send requests through :mod:`tests.simulation.network` to the real broker on a
:class:`~tests.simulation.disk.Disk`, which crashes, loses what is not durable, fills up, fails
calls or is slow, while the wall clock jumps. What they know from answers alone is compared with
what the broker says and has stored:

    * `book.py`: records and transactions; `producers.py`, `readers.py`: their clients
    * `offsets.py`, `classic.py`, `consumer.py`, `queue.py`: committed offsets and groups
    * `topics.py`: topics and their configs
    * `flips.py`: flipped bits in copies of the files
    * `world.py`: the random choices, and the end of every run
"""
