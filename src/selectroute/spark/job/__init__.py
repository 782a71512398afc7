"""Job as data, and the output folder that is its own.

``job`` has the options, ``unrouted`` the policy for messages that nobody wants, ``output_folder`` refuses
what belongs to another job, ``checkpoint`` repairs Spark's own record after a crash.
"""
