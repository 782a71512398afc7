"""Client of a Kafka cluster, as far as record batches need one.

``wire`` has the connections and the requests of reading, ``transactions`` those of writing, ``settings`` what
Kafka's own settings mean here, ``errors`` what can go wrong. kafka-python does the protocol.
"""
