"""Replay of dead letters.

``letters`` reads dead letters from the output folder, ``request`` stores the requests of a command,
``replay`` carries them out, in side batches.
"""
