"""Arrays of a snapshot, built from subscriptions, stored in files, and read by the kernel.

``tables`` draws their layout. All of them are immutable.
"""
