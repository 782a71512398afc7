"""Checks of a snapshot: cheap ones when it is opened, all of them on demand."""
