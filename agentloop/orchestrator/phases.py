"""The phases of a run and the one table of what may follow what.

The reducer's every step is checked against it, and the page about it is drawn from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from agentloop.machine import TransitionTable

__all__ = ("ORCHESTRATION", "SELF_LOOPS", "Phase")


class Phase(StrEnum):
    """Where a run stands."""

    INIT = "init"
    #: The window is being built.
    ASSEMBLE = "assemble"
    #: The model is being asked.
    MODEL = "model"
    #: What the reply asks for is being decided.
    ROUTE = "route"
    #: Tools are running.
    TOOLS = "tools"
    #: Observations are being folded into the transcript.
    OBSERVE = "observe"
    #: A failed model call waits to be tried again.
    BACKOFF = "backoff"
    #: The draft is being turned into the output.
    FINALIZE = "finalize"
    #: Answered.
    DONE = "done"
    #: Given up.
    FAILED = "failed"
    #: A declared limit was reached.
    HALTED = "halted"


#: Which event may follow in which phase, and the phases that may come then.
ORCHESTRATION: Final = TransitionTable[Phase](
    {
        Phase.INIT: {"run.started": (Phase.ASSEMBLE, Phase.HALTED)},
        Phase.ASSEMBLE: {
            "context.assembled": (Phase.MODEL, Phase.HALTED),
            "summary.recorded": (Phase.ASSEMBLE,),
        },
        Phase.MODEL: {
            "model.frame": (Phase.MODEL,),
            "model.succeeded": (Phase.ROUTE,),
            "model.failed": (Phase.ASSEMBLE, Phase.BACKOFF, Phase.OBSERVE, Phase.FAILED, Phase.HALTED),
        },
        Phase.ROUTE: {
            "route.tools": (Phase.TOOLS, Phase.HALTED),
            "route.answer": (Phase.FINALIZE,),
            "route.repair": (Phase.OBSERVE,),
        },
        Phase.TOOLS: {
            "tool.started": (Phase.TOOLS,),
            "tools.completed": (Phase.OBSERVE, Phase.FAILED),
        },
        Phase.OBSERVE: {"observations.recorded": (Phase.ASSEMBLE, Phase.HALTED)},
        Phase.BACKOFF: {"backoff.elapsed": (Phase.MODEL,)},
        Phase.FINALIZE: {"output.finalized": (Phase.DONE,)},
        Phase.DONE: {},
        Phase.FAILED: {},
        Phase.HALTED: {},
    },
    anywhere={
        "budget.exceeded": (Phase.HALTED,),
        "fault": (Phase.FAILED,),
        "run.cancelled": (Phase.FAILED,),
    },
)

#: Events that leave the phase as it is: paths, traces, fingerprints and counts skip them.
SELF_LOOPS: Final = frozenset({"model.frame", "summary.recorded", "tool.started"})
