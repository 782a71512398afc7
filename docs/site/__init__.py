"""Site of the documentation: what is generated in its pages, and the build.

``python -m docs.site`` copies the pages of ``docs/`` and the files that they link to into ``build/site``,
and has Zensical build HTML of them, offline; a warning fails the build. ``python -m docs.site --write``
writes what is generated into the pages, between ``<!-- name -->`` and ``<!-- /name -->``; ``tests/docs``
compares the two. ``python -m docs.site --run-notebook`` runs the notebook of the tutorials and stores its
outputs in it.

``pages`` reads pages: their code, links and headings. ``generated`` lists the generated parts, which
``commands``, ``calls``, ``tables`` and ``names`` make. ``picture`` draws the way of a message. ``docstrings``
prepares docstrings for mkdocstrings, ``notebook`` runs the notebook and makes a page of it, and ``build``
makes the site.
"""
