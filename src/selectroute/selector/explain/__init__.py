"""Explanations of the truth of a selector for a message, in sentences."""
