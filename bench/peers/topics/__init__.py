"""Peers that run from topic to topic of Kafka: a relay by hand, and jobs of frameworks."""
