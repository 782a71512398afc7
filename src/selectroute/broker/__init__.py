"""Broker for JMS clients, which connect by AMQP 1.0.

::

    frames ─ amqp ─→ events ─ broker.amqp ─→ publish ─→ match ─→ put, a group of them in one transaction
    frames ←─ amqp ←─ calls ←─ broker.amqp ←──────── mailbox ←─ in memory, or taken of the database

`broker` and `mailbox` know no protocol; `amqp` says what the frames of a client ask of them, `jms` what a
message is. `groups` makes transactions, `durable` has the subscriptions of the registry, `addresses` maps JMS
names, `accounts` says who may, and `server` is the process. One event loop does all but transactions, which
one thread runs, and what reads or changes the registry.
"""
