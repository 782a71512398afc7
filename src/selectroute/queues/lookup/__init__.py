"""Lookups: match options, selectors and groups, and rules common to all stores."""
