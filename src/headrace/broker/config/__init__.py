"""Broker, topic and group configuration."""
