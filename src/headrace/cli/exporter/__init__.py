"""``headrace exporter``: the lag of a cluster as metrics for Prometheus."""
