"""Java, jars, the Spark session, and functions over task numbers; nothing here concerns routing."""
