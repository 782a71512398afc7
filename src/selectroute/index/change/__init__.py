"""Changes to a snapshot: delta segments, and merging them."""
