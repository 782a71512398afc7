"""``python -m selectroute`` is the command ``selectroute``."""

from selectroute.cli import main

if __name__ == "__main__":
    main()
