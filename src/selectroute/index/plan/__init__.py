"""Under which key a clause is found: access keys, their cost, hot keys, ranges."""
