"""Tasks: a folder that says what is to be done, and how it becomes a run."""

from agentloop.tasks.file import TASK_FILE, RoleSpec, Task, TaskNode, load_task, task_schema
from agentloop.tasks.run import (
    TaskRun,
    begin_task,
    fork_task,
    open_memory,
    resume_task,
    runs_folder,
)

__all__ = (
    "TASK_FILE",
    "RoleSpec",
    "Task",
    "TaskNode",
    "TaskRun",
    "begin_task",
    "fork_task",
    "load_task",
    "open_memory",
    "resume_task",
    "runs_folder",
    "task_schema",
)
