"""Calls on subscriptions, changes, messages and tokens, and the thread that publishes their changes."""
