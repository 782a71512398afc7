"""Command ``python -m docs.site``: builds the site, or writes what is generated into the pages."""

from __future__ import annotations

import argparse
import sys

from docs.site import build, generated, notebook, picture
from docs.site.pages import ROOT


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description="Build the documentation.")
    parser.add_argument("--write", action="store_true", help="write what is generated into the pages")
    parser.add_argument("--run-notebook", action="store_true", help="run the notebook, and store its outputs")
    given = parser.parse_args()
    if given.run_notebook:
        for path in notebook.write():
            print(path.relative_to(ROOT))
    if given.write:
        for path in [*generated.write(), *picture.write()]:
            print(path.relative_to(ROOT))
    if given.write or given.run_notebook:
        return 0
    try:
        print(build.build().relative_to(ROOT))
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
