"""headrace side by side with Apache Kafka."""
