"""Batches, each routed exactly once.

``router`` has the five steps of a batch; ``pins`` fixes its revision and its plan, ``commits`` stages,
commits and publishes it. ``changed_inputs`` warns of files that were changed after their batch. Change
nothing here without running ``tests/crash``.
"""
