"""Authorization of callers: bearer tokens, their roles, and the subscriptions that each may read and change.

::

    secret ──tokens──→ Token: role, topics, destinations ──→ permission: checked by the writing transaction

``role`` has the three roles, each with the rights of the previous. ``tokens`` keeps only hashes of secrets.
``permission`` judges the specification that is stored, so that a check and a change cannot differ.
All three may be imported from outside; what writes tokens is called by `Registry` only.
"""
