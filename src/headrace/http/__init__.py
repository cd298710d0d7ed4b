"""The HTTP server of the page, the metrics port and the exporter."""
