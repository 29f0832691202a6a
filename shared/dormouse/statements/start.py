"""Where the process of a statement begins: it imports what it needs, and little more.

Arrow and DataFusion import numpy and pandas where these are installed, which takes longer than all
the rest, and nothing here uses them.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the statement, without numpy and pandas."""
    for package in ("numpy", "pandas"):
        sys.modules[package] = None  # type: ignore[assignment]  # importing it fails
    from dormouse.statements.child import main as run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
