"""Subscriptions to the arrays of a segment."""
