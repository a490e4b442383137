"""Fixtures for every test: backend-neutral tests run on asyncio and on trio."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend = request.param
    assert isinstance(backend, str)
    return backend
