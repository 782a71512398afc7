"""Calls on what streams report: their batches and health, the activity of subscriptions, recent messages.

``streams`` takes the reports of batches, lists them, and judges whether all streams keep up. ``activity``
has the last deliveries and rates of subscriptions, from the same reports. ``samples`` takes and lists recent
messages, and tries a change on them; ``recent_messages`` keeps them parsed.

The calls are in ``service.calls``; the service's context owns the one `RecentMessages`.
"""
