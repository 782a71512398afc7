"""HTTP layer of all calls: callers and their rights, limits, errors as problem documents, OpenAPI."""
