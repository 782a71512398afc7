"""Tables that a job writes as Parquet: their columns, files, and row counts."""
