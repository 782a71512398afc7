"""Messages from a folder of Parquet or JSON files.

``lister`` plans the files of a batch, ``splits`` cuts them, ``reader`` reads a split in a worker; ``source``
puts these together.
"""
