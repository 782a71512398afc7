"""Snapshots as files in a folder: format, manifests, the publisher, retention."""
