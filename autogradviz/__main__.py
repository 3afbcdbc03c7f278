"""``python -m autogradviz``: the command line interface."""

import sys

from autogradviz.cli import main

if __name__ == "__main__":
    sys.exit(main())
