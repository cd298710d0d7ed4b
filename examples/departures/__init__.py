"""A pipeline over all three sources: departures from New York with the weather known at the time.

``data`` produces flights and weather, ``enrich`` joins them in timestamp order (``kafka-ordered``),
``desk`` works the result as a queue (``kafka-share``), ``backlog`` watches both (``kafka-lag``),
``report`` shows and checks the outcome.
"""
