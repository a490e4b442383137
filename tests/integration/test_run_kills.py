"""Processes that drive a run are killed around every append; what was done is not done again.

The tools count themselves in a file, so it is what really happened that is counted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentloop._canonical import decode
from tests.integration.run_killer import DRIVERS, WRITES
from tests.tally import tally

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("driver", DRIVERS)
def test_f4_a_run_killed_anywhere_goes_on_and_repeats_no_write(driver: str, disk: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.run_killer", driver, str(disk)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [decode(line) for line in done.stdout.splitlines()]
    assert len(told) > 15
    in_doubt = 0
    for kill in told:
        where = kill["where"]
        if kill["status"] == "nothing on record":
            assert (where, kill["before"]) == ("before append 1", [])
            continue
        assert kill["status"] in ("SUCCESS", "completed"), kill
        assert kill["replays"], kill
        # Done once, unless it is on record that nobody knows: then not again.
        assert sorted({*kill["after"], *kill["unknown"]}) == [*WRITES], kill
        assert len(kill["after"]) == len({*kill["after"]}), kill
        assert len(kill["unknown"]) <= 1, kill
        assert {*kill["unknown"]} & {*kill["after"]} <= {*kill["before"]}, kill
        in_doubt += bool(kill["unknown"])
    assert in_doubt >= 2
    tally("run kills", len(told))
