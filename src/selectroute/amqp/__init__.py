"""AMQP 1.0 from a server's side, without input and output: bytes in, events out, and bytes to send.

::

    bytes ─→ connection ─→ session ─→ link ─→ events: an open, an attach, a message, an outcome …
                headers      windows    credit
                SASL, frames, idle      parts of messages
    bytes ←─ connection ←─ session ←─ link ←─ calls: attach, settle, send …

`types` has the encoding of values, `performatives` the composite types with the fields of the specification,
`sections` what a broker reads of a message, whose bytes it hands on as they are. Every length, count, depth
and frame is bounded (`output.ConnectionLimits`); what is not AMQP gets the specification's error and a closed
connection. The specification is OASIS' "AMQP Version 1.0", of 2012. Out of scope: the resumption of links,
distributed transactions, and the client's side.
"""
