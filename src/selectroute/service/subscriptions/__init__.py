"""Calls on subscriptions, changes, messages and tokens, and the threads that publish their changes.

::

    subscriptions: a single one   bulk: many   search: by a text
    changes: the change log       messages: match, explain, check   tokens: who may call
    streams: reports of batches, activity of subscriptions          samples: recent messages
    publishing: from a commit to the batch that uses it

``service.calls`` lists the functions of these modules, the service's context owns what outlives a call.
"""
