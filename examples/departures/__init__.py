"""Every departure from New York with the weather as it was known at that moment: a pipeline over
all three sources.

``data`` produces flights and weather, ``enrich`` joins them in timestamp order (``kafka-ordered``),
``desk`` works the result as a queue (``kafka-share``), ``backlog`` watches both (``kafka-lag``),
``report`` shows and checks the outcome.
"""
