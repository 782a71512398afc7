"""Sources of peers in Java, and what runs those of them that are frameworks for jobs from topic to topic."""
