"""Side batches of a job, between two batches of its stream: backfills and replays of dead letters.

``side_batches`` has what both have in common. ``backfill`` computes from the change log what paused
subscriptions missed, and delivers it. ``letters`` reads dead letters from the output folder, ``request``
stores the requests of a command, and ``replay`` carries them out.
"""
