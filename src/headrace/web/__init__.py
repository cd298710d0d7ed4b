"""``headrace ui``: a page to look at the queues of a cluster, and to work on them.

``observer.py`` observes the cluster in a thread of its own. A view is a function that returns a
type of ``views.py`` (``lists.py``, ``groups.py``, ``record_views.py``); its parameters and its
result are read by ``schemas.py``, so that ``app.py`` serves each view as a page and as JSON, and
``openapi.py`` describes it. An action of ``actions.py`` is declared in the same way: it returns a
plan, which is executed after a confirmation. ``access.py`` checks logins and forms.
"""
