"""Client of Kafka: settings, connections and requests, on the protocol and the network of kafka-python."""
