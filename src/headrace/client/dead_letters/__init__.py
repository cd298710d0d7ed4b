"""Dead-letter queues of share groups (KIP-1191), on any cluster: find, read and redrive them.

A record is a dead letter if it has the headers of :mod:`headrace.protocol.dead_letters`, whoever
wrote it. :func:`~.queues.find_queues` counts letters, :func:`~.reading.read_letters` reads them,
and :class:`~.redrive.Redrive` produces their records to their sources again. All of them block:
call them in a thread.
"""
