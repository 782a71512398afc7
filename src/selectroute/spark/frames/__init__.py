"""DataFrames in and out: no job and no output folder.

``route`` adds matches to a frame, or returns a row for each delivery; ``match_files`` matches files with the
fan-out's readers.
"""
