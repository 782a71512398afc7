"""Read-only checks of a job's output folder, and reruns in another folder.

``audit`` compares commits, files and inputs (``source_check``, ``report``), ``rerun`` routes committed
batches again into a folder of its own, ``status`` reports the progress of a job, ``deliveries`` looks up
deliveries of subscriptions.
"""
