"""Every block of the tutorial and the how-to pages does what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.command.agent import _Options as CommandOptions
from adapters.openai.chat import _Options as OpenAIOptions
from agentloop._canonical import decode
from agentloop.tasks import load_task
from tests.adapters.chat_server import chat_server
from tests.agentloop.cli.command import environment
from tests.examples.answers import streamed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOCAL = "http://127.0.0.1:8080/v1"
BLOCK = re.compile(
    r"(?:<!-- file: (\S+) -->\n)?^```(\w+)(?: exit=(\d))?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass
class Block:
    file: str
    language: str
    exit_code: int
    text: str


def blocks(page: Path) -> list[Block]:
    return [
        Block(file, language, int(code or 0), text)
        for file, language, code, text in BLOCK.findall(page.read_text("utf-8"))
    ]


class Reader:
    """Does what a page says, block by block, in one shell."""

    def __init__(self, folder: Path, **env: str) -> None:
        self._folder, self._env = folder, environment(**env)
        self._said = ""
        commands = folder / "bin"
        commands.mkdir()
        for name, module in (("agentloop", "agentloop.cli"), ("adaptogen", "graphstate.cli")):
            (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n', "utf-8")
            (commands / name).chmod(0o755)
        self._env["PATH"] = f"{commands}{os.pathsep}{self._env['PATH']}"

    def follow(self, block: Block) -> None:
        if block.file:
            (self._folder / block.file).write_text(block.text, "utf-8")
        elif block.language == "sh":
            self._run(block)
        elif block.language == "text":
            self._compare(block.text)

    def _run(self, block: Block) -> None:
        # At its end the shell tells where it is and with which variables: the next one goes on there.
        state = "" if block.exit_code else "pwd >&2; env -0 >&2"
        done = subprocess.run(
            ["sh", "-c", f"set -e\n{block.text}{state}"],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == block.exit_code, (block.text, done.stdout, done.stderr)
        self._said = done.stdout
        if not block.exit_code:
            folder, _, variables = done.stderr.rpartition("\n")
            self._folder = Path(folder.splitlines()[-1])
            self._env = dict(pair.split("=", 1) for pair in variables.split("\0") if pair)

    def _compare(self, text: str) -> None:
        """Demand the lines, in order, among what was said; an ellipsis stands for anything."""
        said = iter(self._said.splitlines())
        for line in text.splitlines():
            pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
            assert any(pattern.fullmatch(other) for other in said), (line, self._said)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = shutil.ignore_patterns(".agentloop", "__pycache__")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=kept)
    return tmp_path


def test_the_tutorial_can_be_followed_word_by_word(folder: Path) -> None:
    page = blocks(DOCS / "tutorial.md")
    reader = Reader(folder)

    for block in page:
        reader.follow(block)

    made = (folder / "hello" / "task.toml").read_text("utf-8")
    assert tomllib.loads(next(b.text for b in page if b.language == "toml")) == tomllib.loads(made)


def test_a_command_line_agent_works_as_the_page_says(folder: Path) -> None:
    reader = Reader(folder)

    for block in blocks(DOCS / "how-to" / "command-line-agent.md"):
        reader.follow(block)


def test_a_run_is_resumed_and_forked_as_the_page_says(tmp_path: Path) -> None:
    reader = Reader(tmp_path)

    for block in blocks(DOCS / "how-to" / "resume-and-fork.md"):
        reader.follow(block)


def test_a_real_model_works_as_the_page_says(folder: Path) -> None:
    script: Any = decode((ROOT / "examples" / "fix-the-tests" / "agent.json").read_bytes())
    with chat_server(*map(streamed, [*script["calls"], *script["calls"]])) as server:
        reader = Reader(folder, OPENAI_BASE_URL=server.base_url)
        for block in blocks(DOCS / "how-to" / "real-model.md"):
            reader.follow(replace(block, text=block.text.replace(LOCAL, server.base_url)))

    assert [request["model"] for request in server.requests] == ["gpt-5-mini"] * 9 + ["qwen3"] * 9
    assert [headers["authorization"] for headers in server.headers[::9]] == ["Bearer your-key", "Bearer none"]


@pytest.mark.parametrize(
    ("page", "form"), [("real-model.md", OpenAIOptions), ("command-line-agent.md", CommandOptions)]
)
def test_every_option_is_explained(page: str, form: type[msgspec.Struct]) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "how-to" / page).read_text("utf-8"), re.MULTILINE)

    assert sorted(rows) == sorted(field.name for field in msgspec.structs.fields(form))


@pytest.mark.parametrize("page", ["real-model.md", "command-line-agent.md"])
def test_task_files_on_the_pages_are_valid(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(b for b in blocks(DOCS / "how-to" / page) if b.language == "toml"):
        task = tmp_path / str(number)
        (task / "workspace").mkdir(parents=True)
        head = "" if "[task]" in block.text else 'checks = ["file_exists:x"]\n[task]\ngoal = "x"\n'
        (task / "task.toml").write_text(head + block.text, "utf-8")
        load_task(task)
