"""The ``kafka-lag`` source."""
