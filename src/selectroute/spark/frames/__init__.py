"""DataFrames in and out: no job and no output folder.

``route`` adds matches to a frame, or makes a row of each delivery; ``following`` is the same for a stream
that follows a snapshot folder; ``match_files`` matches files by the fan-out's reading path.
"""
