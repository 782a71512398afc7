"""IBM MQ's messaging REST API, version 3, as data: shared by the service and its client."""
