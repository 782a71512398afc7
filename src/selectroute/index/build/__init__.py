"""Building of a segment's arrays from subscriptions."""
