"""``headrace ui``: a page to look at the queues of a cluster, and to work on them.

``observer.py`` observes the cluster in a thread of its own; ``site.py`` and ``api.py`` serve pages
and JSON from its observations. Details (``groups.py``, ``topics.py``, ``records.py``) are queried
for each view. ``access.py`` checks logins and forms; ``actions.py`` plans changes, and executes
them after a confirmation.
"""
