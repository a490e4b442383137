"""Compare a built wheel with the source: `wheel_holds_the_packages.py WHEEL SOURCE`.

Every file of the three packages must be in the wheel (types markers and the task schema too), and
nothing else beside the wheel's own metadata.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PACKAGES = ("agentloop", "graphstate", "adapters")
MUST = {"agentloop/tasks/task.schema.json", "agentloop/py.typed", "graphstate/py.typed"}


def main(wheel: str, source: str) -> int:
    root = Path(source)
    expected = {
        str(path.relative_to(root))
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file()
    }
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if problems := [
        *(f"missing: {name}" for name in sorted((expected | MUST) - shipped)),
        *(f"too much: {name}" for name in sorted(shipped - expected)),
    ]:
        print("\n".join(problems), file=sys.stderr)
        return 1
    print(f"{Path(wheel).name}: {len(shipped)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
