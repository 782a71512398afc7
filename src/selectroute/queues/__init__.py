"""Stage 5, beside the registry: messages that were delivered wait here until each is got, once.

    put ─admit→ Message ─Catalogue.add→ places and ids ─find(Request)→ the first match ─get→ gone

`MemoryQueue` finds its messages by each of their ids, so a get by MsgId, CorrelId or GroupId, or by several
of them, costs about the same on a thousand messages as on ten million (IBM MQ indexes one of the ids and
scans for the others): they are packed in `blocks`, and the tables of `ids` have nothing in them but hashes
and places. `options` are IBM's match options, `request` is what one get asks for, checked, and `errors` what
is refused, with IBM's reason codes.

A selector is read once (`selection`): the forms that seed 000 names are gets by id, any other is looked up by
its equalities in an index of the messages that is made when it is first needed, and only what has no equality
walks through the queue, counted. What selectors see of a message is `visible`.

Who waits for a message is found from the message, never the other way round (`waiting`): by its ids, and for
selectors by the same `Index` as subscriptions.

`SqlQueue` keeps the messages in a database (`tables`), where every call is a transaction: a get by ids is one
statement that takes the row and returns it, what a selector equates is found by keys of the messages that are
made when it is first worth it (`sql_indexes`), and what a process has in units is marked as its own until it
commits, or is dead (`owners`).

`SqlQueues` has all queues of a database open over one pool of connections (`sql_database`), and a get can
wait there without a thread (`sql_call`). ``rest_ids``, ``rest_properties``, ``rest_headers``, ``rest_lookup``
and ``rest_items`` are a message, and what one is asked for by, as texts of IBM MQ's messaging REST API v3:
for the service, and for the commands that ask it.

Read in this order: options, message, request, queue, places, blocks, ids, catalogue, selection, memory_queue,
tables, sql_statements, sql_holding.
"""
