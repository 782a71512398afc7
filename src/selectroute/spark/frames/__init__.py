"""DataFrames in and out: no job and no output folder.

``route`` adds matches to a frame, or returns a row for each delivery; ``following`` pins revisions for a
stream that follows a snapshot folder; ``match_files`` matches files with the fan-out's readers.
"""
