"""Java, jars, the Spark session, and functions over task numbers. Nobody who routes need enter."""
