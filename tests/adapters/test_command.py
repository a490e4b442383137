from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.command import CommandAgent, command_adapter
from agentloop.errors import AgentLoopConfigError, TurnError
from agentloop.frames import DONE, ERROR, REASONING, TEXT, USAGE, Frame
from agentloop.models import AdapterContext
from tests.adapters.alive import Watch, watch

pytestmark = pytest.mark.anyio

PROMPT = [Frame(TEXT, {"text": "one"}), Frame(TEXT, {"text": "zwei ä"})]
END = Frame(DONE, {"finish_reason": "end_turn"})


def python(code: str, **options: Any) -> CommandAgent:
    return CommandAgent([sys.executable, "-c", code], **options)


def shell(code: str, **options: Any) -> CommandAgent:
    return CommandAgent(["/bin/sh", "-c", code], **options)


async def play(agent: CommandAgent, prompt: Sequence[Frame] = PROMPT) -> list[Frame]:
    with anyio.fail_after(20):
        return [frame async for frame in agent(prompt)]


def said(frames: Sequence[Frame]) -> str:
    return "".join(frame.text for frame in frames if frame.type == TEXT)


async def test_the_prompt_is_the_input_and_the_output_is_text() -> None:
    frames = await play(python("import sys; print(sys.stdin.read() + '!')"))

    assert said(frames) == "one\n\nzwei ä!\n"
    assert frames[-1] == END


async def test_the_prompt_can_be_given_as_json() -> None:
    frames = await play(shell("cat", stdin="json"), [Frame(TEXT, {"text": "a"}, id="x")])

    assert said(frames) == '[{"content":{"text":"a"},"id":"x","type":"TEXT"}]\n'


async def test_text_is_passed_on_while_the_command_still_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    agent = shell(f"echo first; read line < {go}; echo second")
    frames = agent(PROMPT)

    assert (await anext(frames)).text == "first\n"
    go.write_text("\n")
    assert [frame async for frame in frames] == [Frame(TEXT, {"text": "second\n"}), END]


async def test_a_character_cut_in_two_is_put_together_again() -> None:
    code = "import os,sys; b='é😀'.encode(); [os.write(1, b[i:i+1]) for i in range(len(b))]"

    assert said(await play(python(code))) == "é😀"


async def test_what_is_no_utf8_is_replaced() -> None:
    assert said(await play(shell(r"printf 'a\377b\303'"))) == "a\ufffdb\ufffd"


async def test_json_lines_are_frames_and_other_lines_text() -> None:
    lines = [
        '{"type": "TEXT", "content": {"text": "hi"}}',
        '{"type": "REASONING", "content": {"text": "hm"}}',
        "plain words",
        "",
        '{"type": "assistant", "message": "of another program"}',
        "[1]",
        '{"type": "USAGE", "content": {"inputTokens": 3}}',
        '{"type": "ERROR", "content": {"message": "half"}}',
        '{"type": "DONE", "content": {"finishReason": "max_tokens"}}',
        '{"type": "TEXT", "content": {"text": "\\ud800 after"}}',
    ]
    frames = await play(shell("cat <<'X'\n" + "\n".join(lines) + "\nX", output="jsonl"))

    assert frames == [
        Frame(TEXT, {"text": "hi"}),
        Frame(REASONING, {"text": "hm"}),
        Frame(TEXT, {"text": "plain words\n"}),
        Frame(TEXT, {"text": lines[4] + "\n"}),
        Frame(TEXT, {"text": "[1]\n"}),
        Frame(USAGE, {"input_tokens": 3}),
        Frame(ERROR, {"message": "half"}),
        Frame(TEXT, {"text": "\ufffd after"}),
        Frame(DONE, {"finish_reason": "max_tokens"}),
    ]


async def test_the_last_json_line_may_lack_its_end() -> None:
    frames = await play(shell("""printf '{"type":"TEXT","content":{"text":"x"}}'""", output="jsonl"))

    assert frames == [Frame(TEXT, {"text": "x"}), END]


async def test_a_tool_call_that_could_not_be_answered_fails_the_turn() -> None:
    agent = shell("""echo '{"type":"TOOL_CALL","content":{"name":"fs"}}'""", output="jsonl")

    with pytest.raises(TurnError, match=r"asked for the tool 'fs'"):
        await play(agent)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("echo before; echo what went wrong >&2; exit 3", "exit code 3: what went wrong"),
        ("exit 1", "exit code 1 and said nothing"),
        ("kill -9 $$", "signal 9"),
    ],
)
async def test_an_exit_code_other_than_zero_fails_the_turn_with_what_was_said(
    code: str, message: str
) -> None:
    with pytest.raises(TurnError, match=message):
        await play(shell(code))


async def test_of_much_on_stderr_the_end_is_told() -> None:
    code = "import sys; sys.stderr.write('x' * 5_000_000 + ' the end'); sys.exit(2)"

    with pytest.raises(TurnError, match="the end") as caught:
        await play(python(code))

    assert len(str(caught.value)) < 3_000


async def test_much_output_before_any_input_is_read_does_not_block() -> None:
    code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stdout.write(str(len(sys.stdin.read())))"
    prompt = [Frame(TEXT, {"text": "y" * 1_000_000})]

    assert len(said(await play(python(code), prompt))) == 3_000_007


async def test_more_output_than_allowed_fails_the_turn_and_ends_the_command() -> None:
    with pytest.raises(TurnError, match="max_output=100000"):
        await play(shell("yes", max_output=100_000))


async def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(TurnError, match=r"'no-such-program-here' could not be started: No such file"):
        await play(CommandAgent(["no-such-program-here"]))


async def test_a_working_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TurnError, match="nowhere"):
        await play(shell("true", cwd=tmp_path / "nowhere"))


# ------------------------------------------------------------------------------- ending it all


def family(alive: Watch, *, stubborn: bool = False) -> str:
    """A command with a child and a grandchild, all of which would run for a minute."""
    trap = "trap '' TERM; " if stubborn else ""
    hold = f"{trap}echo up >&3; sleep 60"
    return f"exec 3>{alive.path}; {trap}(({hold}) & {hold}) & echo ready; {hold}"


async def begin(agent: CommandAgent) -> AsyncGenerator[Frame, Any]:
    frames = agent(PROMPT)
    assert (await anext(frames)).text == "ready\n"
    return frames


@pytest.mark.parametrize("stubborn", [False, True])
async def test_leaving_a_turn_ends_the_whole_family(tmp_path: Path, stubborn: bool) -> None:
    with watch(tmp_path) as alive:
        frames = await begin(shell(family(alive, stubborn=stubborn), grace_ms=50))
        await frames.aclose()
        await alive.all_gone()


async def test_cancelling_a_turn_ends_the_whole_family(tmp_path: Path) -> None:
    with watch(tmp_path) as alive:
        with anyio.CancelScope() as scope:
            async with aclosing(shell(family(alive))(PROMPT)) as frames:
                async for frame in frames:
                    assert frame.text == "ready\n"
                    scope.cancel()
        assert scope.cancelled_caught
        await alive.all_gone()


async def test_a_turn_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with watch(tmp_path) as alive:
        with pytest.raises(TurnError, match="ran longer than timeout_ms=300"):
            await play(shell(family(alive), timeout_ms=300))
        await alive.all_gone()


async def test_the_time_also_ends_for_a_command_that_closed_its_output(tmp_path: Path) -> None:
    with watch(tmp_path) as alive:
        with pytest.raises(TurnError, match="timeout_ms=300"):
            await play(shell(f"exec 3>{alive.path} >&-; sleep 60", timeout_ms=300))
        await alive.all_gone()


async def test_what_a_command_left_running_does_not_hold_up_the_turn(tmp_path: Path) -> None:
    with watch(tmp_path) as alive:
        frames = await play(shell(f"exec 3>{alive.path}; (sleep 60) & echo done"))
        await alive.all_gone()

    assert said(frames) == "done\n"


async def test_turns_leave_no_descriptor_open() -> None:
    agent = shell("cat >/dev/null; echo x")
    await play(agent)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        await play(agent)

    assert len(os.listdir("/proc/self/fd")) <= before


async def test_one_agent_takes_several_turns() -> None:
    agent = shell("cat")

    assert [said(await play(agent, [Frame(TEXT, {"text": word})])) for word in "ab"] == ["a", "b"]


# ------------------------------------------------------------------------------------- options


async def test_secrets_of_the_environment_are_passed_by_name_only() -> None:
    environ = {"PATH": os.environ["PATH"], "API_KEY": "canary", "NAMED": "yes", "HOME": "/h"}
    agent = shell("env", environ=environ, pass_env=["NAMED", "ABSENT"], env={"MINE": "1"})

    lines = said(await play(agent)).split("\n")
    assert {"NAMED=yes", "MINE=1", "HOME=/h"} <= set(lines)
    assert not [line for line in lines if "canary" in line or "ABSENT" in line]
    assert "canary" not in repr(agent)


@pytest.mark.parametrize(
    "options",
    [
        {"argv": []},
        {"argv": "ls -l"},
        {"argv": ["ls"], "output": "xml"},
        {"argv": ["ls"], "stdin": "yaml"},
        {"argv": ["ls"], "timeout_ms": 0},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AgentLoopConfigError):
        CommandAgent(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "argv"), ({"argv": ["ls"], "timout_ms": 3}, "timeout_ms"), ({"argv": "ls"}, "argv")],
)
def test_options_of_a_task_file_are_checked(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(AgentLoopConfigError, match=message):
        command_adapter(options, AdapterContext(workspace=Path(), base=Path()))
