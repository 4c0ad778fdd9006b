"""`python -m atlasd`."""

from __future__ import annotations

import sys


def main() -> int:
    """The program, also where it is interrupted while its modules are still being imported."""
    try:
        from atlasd.cli import main as program

        return program()
    except KeyboardInterrupt:
        print("atlasd: interrupted; run the same command again to start over.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
