"""Progress of queries: what the sources report, and its export to Prometheus."""
