"""Arrays of a snapshot: what is built from subscriptions, kept in files, and read by the kernel.

``tables`` draws them. Nothing here changes once it is made.
"""
