"""Messages from a folder of Parquet or JSON files."""
