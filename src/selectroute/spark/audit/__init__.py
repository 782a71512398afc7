"""Read-only checks of a job's output folder, and reruns in another folder.

``audit`` compares commits, files and inputs, ``rerun`` routes committed batches again into a folder of its
own, ``outcomes`` has the newest deliveries of a job and its busiest subscriptions, ``why`` explains a
delivery.
"""
