"""Files that survive a crash, locks between processes, and directories private to a user.

``disk`` writes and renames files, and JSON with its own checksum, ``lock`` locks files,
``private_folder`` finds the user's cache directories, ``settings_file`` reads settings and refers to secrets
in them. Imports none of the other rooms but ``selector``.
"""
