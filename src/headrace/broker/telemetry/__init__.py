"""Client telemetry (KIP-714): what clients are asked for, and the metrics that they push."""
