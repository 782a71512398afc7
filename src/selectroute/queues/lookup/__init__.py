"""Lookups: match options, requests, selectors and groups, and rules common to all stores."""
