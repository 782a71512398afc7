"""Output folders of jobs: their dead letters, shown and replayed by the job, and audits.

::

    selectroute serve --job flights=out ──▶ selectroute.job_output: what a service asks of a job's folder
                                                 ▲
    GET /v1/jobs/{job}/dead-letters …  calls.py ─┘

The folders belong to jobs, so what reads them is given to the service, which knows only the protocol.
"""
