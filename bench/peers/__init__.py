"""Sources of peers in Java."""
