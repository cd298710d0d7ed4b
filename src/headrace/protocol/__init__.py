"""Bytes on the socket and the typed messages they carry. Knows nothing of brokers, logs or
groups."""
