"""The window a model sees: sections that share a budget, what fills them, and what they cost."""
