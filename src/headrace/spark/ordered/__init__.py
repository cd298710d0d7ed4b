"""The ``kafka-ordered`` source."""
