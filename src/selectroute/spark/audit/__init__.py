"""Audits of what a job left, and reruns beside it. Reads only: nothing of the job is changed.

``audit`` holds commits, files and inputs against one another (``source_check``, ``report``), ``rerun``
routes committed batches once more in a folder of their own, ``status`` says how far a job is, ``deliveries``
answers who got a message.
"""
