"""``python -m agentloop.cli``: the same as ``agentloop``."""

from __future__ import annotations

import sys

from agentloop.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
