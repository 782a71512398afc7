"""Files that survive a crash, locks between processes, and folders that are private to a user.

``disk`` writes and names them, ``sealed_json`` is JSON that says itself whether it is what was written,
``lock`` and ``private_folder`` are what their names say. Below everything else.
"""
