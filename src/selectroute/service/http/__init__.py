"""HTTP, whatever is asked: callers and their rights, limits, errors as problem documents, OpenAPI."""
