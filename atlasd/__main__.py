"""`python -m atlasd`."""

from __future__ import annotations

import sys

from atlasd.cli import main

if __name__ == "__main__":
    sys.exit(main())
