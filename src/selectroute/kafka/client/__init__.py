"""Client of a Kafka cluster, as far as record batches need one.

``wire`` has the connections and the requests of reading, ``transactions`` those of writing, ``settings`` the
table of Kafka's own settings, ``oauth`` tokens for logins, ``errors`` what can go wrong. kafka-python does
the protocol.
"""
