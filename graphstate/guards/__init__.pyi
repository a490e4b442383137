"""The public names, for type checkers; `__init__.py` imports each of them on first use."""

from graphstate.guards.guard import Evaluation as Evaluation
from graphstate.guards.guard import Guard as Guard
from graphstate.guards.guard import compile_guard as compile_guard
from graphstate.guards.guard import eval_guard as eval_guard
from graphstate.guards.language import CONTEXT as CONTEXT
from graphstate.guards.language import EXAMPLES as EXAMPLES
from graphstate.guards.language import GRAMMAR as GRAMMAR
from graphstate.guards.language import GUARD_BUDGET as GUARD_BUDGET
from graphstate.guards.language import OPERATORS as OPERATORS
from graphstate.guards.language import guide as guide
