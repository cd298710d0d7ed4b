"""Requests at scale, beside an honest client: no request may hold the event loop.

``make test`` runs a small form. ``make soak`` runs the whole:

    HEADRACE_TEST_SCALE=50 python -m pytest -s tests/scale

The factor multiplies the sizes of the small form: 50 makes 100,000 topics, 1,000,000 partitions in
requests of 10,000, 10,000 groups, and 10,000 members in one group.
"""
