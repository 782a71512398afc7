"""Read-only checks of a job's output folder, and reruns in another folder.

``audit`` compares commits, files and inputs (``source_check``), ``rerun`` routes committed batches again
into a folder of its own, ``status`` reports the progress of a job, ``outcomes`` has its newest deliveries
and its busiest subscriptions, ``why`` explains a delivery.
"""
