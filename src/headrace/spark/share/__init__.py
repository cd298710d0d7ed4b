"""The ``kafka-share`` source."""
