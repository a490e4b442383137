"""A writer that is there to be killed, started from a process that is ready to fork.

    python -m tests.integration.graph_writer

Reads lines ``start PATH SEED DURABILITY LOCK`` and ``kill``. A writer runs random verbs for ever
and writes a line for each one that was acknowledged: ``ack GRAPH_HEAD RUN_SEQ``. Before it may
set events aside it says ``rolling``. The parent of the writers answers ``dead`` to a kill.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback

from graphstate import Adaptogen, Head, Row, row_hash

__all__ = ("NODES", "RUN", "UNIT_NODES")

RUN = "run:1"
NODES = tuple(f"n{i}" for i in range(8))
#: always written together, in one unit, with the same payload
UNIT_NODES = ("u0", "u1", "u2")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def append_run(graph: Adaptogen, n: int) -> None:
    seq, previous = graph.store.head(RUN)
    rows = []
    for _ in range(n):
        seq += 1
        body = b'{"seq":%d}' % seq
        previous = row_hash(previous, RUN, seq, 0, None, "fact.frames", None, None, None, body)
        rows.append(Row(seq, 0, None, "fact.frames", None, None, None, body, previous))
    head: Head = graph.store.append(RUN, rows, expected=seq - n)
    assert head.seq == seq


def act(graph: Adaptogen, rng: random.Random) -> bool:
    """Run one random verb and say whether it was acknowledged."""
    node, other, number = rng.choice(NODES), rng.choice(NODES), rng.randrange(1_000_000)
    roll = rng.random()
    if roll < 0.25:
        return graph.remember(node, payload={"n": number, "text": "x" * rng.randrange(2_000)}).ok
    if roll < 0.35:
        with graph.unit():
            for part in UNIT_NODES:
                graph.remember(part, payload={"n": number})
            append_run(graph, 1)
        return True
    if roll < 0.45:
        append_run(graph, rng.randrange(1, 5))
        return True
    if roll < 0.55:
        return graph.link(node, other, id=f"e{rng.randrange(12)}", upsert=True).ok
    if roll < 0.60:
        return graph.depend(node, other, id=f"d{rng.randrange(12)}").ok
    if roll < 0.65:
        return graph.unlink(f"{rng.choice('ed')}{rng.randrange(12)}").ok
    if roll < 0.80:
        return graph.step(reward=rng.choice([None, 1, -1])).ok
    if roll < 0.85:
        return graph.reward(1, trace=True).ok
    if roll < 0.95:
        return graph.set_cursor([node]).ok
    if roll < 0.98:
        return graph.checkpoint(rng.choice("xy")).ok
    say("rolling")
    return graph.rollback(rng.choice("xy"), reason="at random").ok


def write(path: str, seed: str, durability: str, lock: str) -> None:
    rng = random.Random(seed)
    graph = Adaptogen.open(path, seed=False, durability=durability, lock=lock)  # type: ignore[arg-type]
    with graph.unit():
        for node in NODES:
            graph.remember(node, status="active")
    graph.set_tunable("snapshotInterval", 20).unwrap()
    while True:
        if act(graph, rng):
            say(f"ack {graph.head()} {graph.store.head(RUN).seq}")


def main() -> None:
    child = 0
    for line in sys.stdin:
        order, *words = line.split()
        if order == "start":
            child = os.fork()
            if not child:
                try:
                    write(*words)
                except BaseException:
                    say("error " + traceback.format_exc().replace("\n", " | "))
                os._exit(1)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            say("dead")


if __name__ == "__main__":
    main()
