"""Messages from Kafka topics."""
