"""`python -m graphstate.cli` is the `adaptogen` command."""

from __future__ import annotations

import sys

from graphstate.cli import main

sys.exit(main())
