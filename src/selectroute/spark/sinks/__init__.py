"""Tables that a job writes, as Parquet: their columns, a file of them, and the counts of their rows."""
