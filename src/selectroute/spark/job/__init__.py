"""Job as data, and its output folder.

``job`` has the options, ``unrouted`` the policy for unrouted messages, ``output_folder`` the ownership and
locks of a folder, ``checkpoint`` the repair of Spark's checkpoint after a crash.
"""
