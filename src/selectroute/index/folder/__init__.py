"""Snapshots as files in a folder: format, manifests, checks, retention."""
