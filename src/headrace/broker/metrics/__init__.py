"""The broker's metrics."""
