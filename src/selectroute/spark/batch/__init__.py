"""Batches, each routed exactly once.

``router`` has the five steps of a batch; ``pins`` says by which revision it is judged, ``commits`` what of
it is decided. ``changed_inputs`` warns of files that changed after their batch. Change nothing here without
running ``tests/crash``.
"""
