"""Site of the documentation: what is generated in its pages, and the build.

``python -m docs.site`` copies the pages of ``docs/`` and the files that they link to into ``build/site``, and has
Zensical build HTML of them, offline; a warning fails the build. ``python -m docs.site --write`` writes what is
generated into the pages, between ``<!-- name -->`` and ``<!-- /name -->``; ``tests/docs`` compares the two.

``pages`` reads pages: their code, links and headings. ``generated`` names every generated part; ``commands``,
``calls``, ``tables`` and ``names`` make them. ``picture`` draws the way of a message. ``build`` makes the site.
"""
