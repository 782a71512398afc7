"""Side batches of a job, between two batches of its stream: backfills and replays of dead letters.

``backfill`` computes from the change log what paused subscriptions missed, and delivers it; it also has what
all side batches have in common. ``letters`` reads dead letters from the output folder, ``request``
stores the requests of a command, and ``replay`` carries them out.
"""
