"""The driver of a run: `cycle` decides, `agent` does, `record` keeps; `looping` runs many nodes."""
