"""Ranges of a sorted group: the entries whose bounds a value satisfies, found by a search.

``range_search`` finds them for the leaves that a row visits, ``range_kernel`` searches the bounds of one
group. Both are compiled into the kernel. ``encoding`` uses `range_kernel.first_not_below`, ``kernel`` uses
`range_search.narrow`.
"""
