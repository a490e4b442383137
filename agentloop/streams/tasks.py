"""The tasks of one owner: a task group that does not wrap what the owner itself raises."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio

__all__ = ("OwnedTasks",)


class OwnedTasks:
    """A task group for objects that are entered, whose users expect their own exceptions back."""

    __slots__ = ("group",)

    async def __aenter__(self) -> Self:
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None:
        """Wait for the tasks, after cancelling them if there is an exception.

        Raises:
            Exception: That of a task, as it is if there is only one.
        """
        try:
            return await self.group.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            if group.exceptions[0] is exc:
                return None  # Python goes on raising it where it stood
            raise group.exceptions[0] from None
