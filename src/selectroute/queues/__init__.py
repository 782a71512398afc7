"""Queues: store delivered messages until each is got, once, by IBM MQ's rules.

    queue.py     Queue, Cursor, MessageStore   a call ─checked once→ Match ─→ a store
    unit.py      UnitOfWork                    puts and gets under syncpoint
    waiting.py   Waiter, Waiters               waiting calls, found by an arriving message
    message/     fields, validation, records   settings.py, errors.py: settings, MQRC reason codes
    lookup.py    MatchOptions and Match, selectors, groups
    memory.py    MemoryQueue over MemoryStore  every id in a dictionary, other fields indexed on demand
    sql/         SqlQueue over SqlStore        a call is a transaction; SqlQueues: all of a database
    rest/        IBM MQ's messaging REST API v3 as data, for the service and its client

Stores import downwards only: ``memory | sql`` → queue → waiting → unit → lookup → message.
"""
