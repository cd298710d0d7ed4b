"""A pipeline over three sources and a sink: departures from New York with the weather of the time.

``data`` produces flights and weather, ``enrich`` joins them in timestamp order (``kafka-ordered``)
and produces the result (``kafka-produce``), ``desk`` works it as a queue (``kafka-share``),
``backlog`` watches both (``kafka-lag``), ``report`` shows and checks the outcome.
"""
