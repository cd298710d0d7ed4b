"""Decorated functions as workers on share groups: :class:`~headrace.worker.app.App`.

A task's records are JSON objects of its arguments, in a topic of its own; a subscriber's are what
others write. ``outcomes`` decides what becomes of a record (pure), ``payload`` turns records into
arguments, ``runner`` runs one function on one share group, ``worker`` runs those of an app until it
is told to stop; ``meter`` measures what a runner does, ``reporter`` tells it to the page.
"""
