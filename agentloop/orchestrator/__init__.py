"""The deterministic orchestrator: a model, its tools, its budgets, one state machine."""
