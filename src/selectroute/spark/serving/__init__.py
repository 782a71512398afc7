"""Output folders of jobs beside a service: their dead letters and audits read, replays requested.

``job_folder`` is what ``selectroute serve --job`` gives to the service.
"""
