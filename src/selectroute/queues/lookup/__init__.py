"""Lookups: match options, requests, selectors and groups, and rules that all stores share."""
