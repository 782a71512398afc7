"""Stage 5, beside the registry: messages that were delivered wait here until each is got, once.

    put ─admit→ Message ─Catalogue.add→ places and ids ─find(Request)→ the first match ─get→ gone

`MemoryQueue` holds its messages in dictionaries by each of their ids, so a get by MsgId, CorrelId or GroupId,
or by several of them, costs the same on a thousand messages as on ten million (IBM MQ indexes one of the ids
and scans for the others). `options` are IBM's match options, `request` is what one get asks for, checked, and
`errors` what is refused, with IBM's reason codes.

A selector is read once (`selection`): the forms that seed 000 names are gets by id, any other is looked up by
its equalities in an index of the messages that is made when it is first needed, and only what has no equality
walks through the queue, counted. What selectors see of a message is `visible`.

Who waits for a message is found from the message, never the other way round (`waiting`): by its ids, and for
selectors by the same `Index` as subscriptions.

Read in this order: options, message, request, queue, order, postings, catalogue, selection, memory_queue.
"""
