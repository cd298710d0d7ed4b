"""``headrace dlq``."""
