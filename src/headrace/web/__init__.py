"""``headrace ui``: a page to look at the queues of a cluster, and to work on them.

``observer.py`` watches the cluster in a thread of its own; ``site.py`` and ``api.py`` serve pages
and JSON from what it has seen. Details (``groups.py``, ``topics.py``, ``records.py``) are asked for
when somebody looks at them. ``access.py`` decides who may do what; ``actions.py`` makes changes,
which are shown before.
"""
