"""Choice of the keys of clauses: access keys, their cost, prefixes, ranges."""
