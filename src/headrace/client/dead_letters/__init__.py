"""Dead-letter queues of share groups (KIP-1191), on any cluster: find, read and redrive them.

A record with the headers of :mod:`headrace.protocol.dead_letters` is a dead letter.
:func:`~.reading.find_queues` finds queues, :func:`~.reading.count_letters` counts their letters,
:func:`~.reading.read_letters` reads them, and :class:`~.redrive.Redrive` produces their records to
their sources again. All of them block: call them in a thread.
"""
