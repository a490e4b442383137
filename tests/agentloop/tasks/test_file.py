"""Task files: what they say, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from agentloop.errors import TaskError
from agentloop.loop.looping import LoopingOptions
from agentloop.loop.options import LoopOptions
from agentloop.tasks import Task, load_task, task_schema

SMALLEST = """
checks = ["file_exists:a"]
[task]
goal = "do it"
[agent]
scripted = "turns.json"
"""


def load(folder: Path, text: str, **options: list[str]) -> Task:
    (folder / "task.toml").write_text(text, "utf-8")
    return load_task(folder, overrides=options.get("overrides", []))


def test_the_smallest_task_has_the_documented_defaults(tmp_path: Path) -> None:
    task = load(tmp_path, SMALLEST)

    assert (task.name, task.goal, task.workspace, task.in_place) == (tmp_path.name, "do it", None, False)
    assert (task.agent.adapter, dict(task.agent.options)) == ("scripted", {"file": "turns.json"})
    assert (task.evaluator.adapter, task.files, task.allow_shell) == ("none", True, False)
    assert (task.checks, task.limits, task.nodes, task.order) == (("file_exists:a",), {}, (), "graph")
    assert (task.state, task.node) == (tmp_path / ".agentloop" / "state.db", f"task:{tmp_path.name}")


def test_everything_a_task_can_say_is_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    task = load(
        tmp_path,
        """
        checks = ["file_exists:a"]
        order = "listed"
        [task]
        name = "t"
        goal = "do it"
        workspace = "work"
        in_place = true
        [agent]
        adapter = "openai"
        model = "m"
        instructions = "be careful"
        options = { temperature = 0.5 }
        [evaluator]
        adapter = "python:judge:make"
        [tools]
        files = false
        allow_shell = true
        timeout_ms = 5
        shell = { pass_env = ["A"] }
        [symbolics]
        initial = { a = 1 }
        declared = { a = "tool" }
        [limits]
        max_iterations = 3
        inner_max_iterations = 2
        [graph]
        file = "graph.db"
        [[nodes]]
        id = "one"
        [[nodes]]
        id = "two"
        goal = "the second"
        after = ["one"]
        checks = ["file_exists:b"]
        """,
    )

    assert (task.name, task.workspace, task.in_place) == ("t", tmp_path / "work", True)
    assert (task.agent.options, task.agent.instructions) == ({"temperature": 0.5, "model": "m"}, "be careful")
    assert task.evaluator.adapter == "python:judge:make"
    assert (task.files, task.allow_shell, task.tool_timeout_ms, task.shell) == (
        False,
        True,
        5,
        {"pass_env": ["A"]},
    )
    assert (task.symbolics, task.symbolic_names) == ({"a": 1}, {"a": "tool"})
    assert (task.limits, task.state) == (
        {"max_iterations": 3, "inner_max_iterations": 2},
        tmp_path / "graph.db",
    )
    assert [(node.id, node.goal, node.after, node.checks) for node in task.nodes] == [
        ("one", "do it", (), ()),
        ("two", "the second", ("one",), ("file_exists:b",)),
    ]
    assert task.order == "listed"


@pytest.mark.parametrize(
    ("folder", "name"), [("a b", "a-b"), ("-x-", "x"), ("\u00fc", "task"), ("n" * 80, "n" * 64)]
)
def test_a_folder_whose_name_cannot_name_a_task_gives_a_similar_one(
    tmp_path: Path, folder: str, name: str
) -> None:
    (tmp_path / folder).mkdir()

    assert load(tmp_path / folder, SMALLEST).name == name


def test_a_task_file_of_any_name_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(SMALLEST, "utf-8")

    assert load_task(tmp_path / "other.toml").folder == tmp_path


def appended(text: str) -> str:
    return f"{SMALLEST}\n{text}\n"


WRONG = {
    "no task": ("", "task is missing"),
    "no goal": ("[task]\n", "task.goal is missing"),
    "an empty goal": ('[task]\ngoal = ""', "task.goal: '' should be non-empty"),
    "no agent": ('[task]\ngoal = "x"', "an [agent] is needed"),
    "nobody to judge": (
        '[task]\ngoal = "x"\n[agent]\nscripted = "f"',
        "nothing could ever say that the task is done: give it checks, or an [evaluator]",
    ),
    "an agent without adapter": ('[task]\ngoal = "x"\n[agent]\nmodel = "m"', "agent.adapter is missing"),
    "an agent that does nothing": (
        '[task]\ngoal = "x"\n[agent]\nadapter = "none"',
        'agent.adapter = "none" is for an evaluator',
    ),
    "two adapters": (
        '[task]\ngoal = "x"\n[agent]\nadapter = "openai"\nscripted = "f"',
        "agent.scripted and agent.adapter = 'openai' exclude each other",
    ),
    "an unknown table": (
        appended("[limit]\nmax_iterations = 3"),
        "unknown key 'limit': did you mean 'limits'?",
    ),
    "an unknown key": (
        appended("[limits]\nmax_iteration = 3"),
        "unknown key 'limits.max_iteration': did you mean 'max_iterations'?",
    ),
    "an unknown key like no other": (
        appended("[graph]\nzzz = 3"),
        "unknown key 'graph.zzz': known are file, memory, node",
    ),
    "an unknown key of a node": (
        appended('[[nodes]]\nid = "a"\nafer = []'),
        "unknown key 'nodes.0.afer': did you mean 'after'?",
    ),
    "a text for a number": (
        appended('[limits]\nmax_iterations = "3"'),
        "limits.max_iterations: '3' is not of type 'integer'",
    ),
    "a boolean for a number": (
        appended("[limits]\nmax_iterations = true"),
        "limits.max_iterations: True is not of type 'integer'",
    ),
    "a number below its bound": (
        appended("[limits]\nmax_retries = -1"),
        "limits.max_retries: -1 is less than the minimum of 0",
    ),
    "a text for a list": (SMALLEST.replace('["file_exists:a"]', '"a"'), "checks: 'a' is not of type 'array'"),
    "another word": (f'order = "random"\n{SMALLEST}', "order: 'random' is not one of ['listed', 'graph']"),
    "a name with a blank": (
        SMALLEST.replace("[task]", '[task]\nname = "a b"'),
        "task.name: 'a b' is no name: it has to match ^[A-Za-z0-9]",
    ),
    "a node with a blank": (appended('[graph]\nnode = "a b"'), "graph.node: 'a b' is no name"),
    "a date": (appended("[agent.options]\nx = 1979-05-27"), "a value of type date at $.agent.options.x"),
    "no finite number": (
        appended("[symbolics.initial]\nx = nan"),
        "nan is not finite at $.symbolics.initial.x",
    ),
    "a writer nobody knows": (
        appended('[symbolics.declared]\nx = "me"'),
        "symbolics.declared.x: 'me' is not one of",
    ),
    "no such workspace": (
        SMALLEST.replace("[task]", '[task]\nworkspace = "nope"'),
        "task.workspace: there is no folder 'nope' beside the task file",
    ),
    "nowhere to work in place": (
        SMALLEST.replace("[task]", "[task]\nin_place = true"),
        "task.in_place needs a task.workspace",
    ),
    "a node twice": (appended('[[nodes]]\nid = "a"\n[[nodes]]\nid = "a"'), "nodes.1.id: 'a' stands twice"),
    "a node after nobody": (
        appended('[[nodes]]\nid = "abc"\n[[nodes]]\nid = "b"\nafter = ["abd"]'),
        "nodes.1.after: no node 'abd': did you mean 'abc'?",
    ),
    "too many nodes": (
        appended("\n".join(f'[[nodes]]\nid = "n{n}"' for n in range(33))),
        "nodes: 33 are more than the 32 there may be",
    ),
    "a limit of nodes without nodes": (
        appended("[limits]\ninner_max_iterations = 3"),
        "limits.inner_max_iterations is for tasks with [[nodes]]",
    ),
    "a check of no kind there is": (
        SMALLEST.replace("file_exists:a", "file_exist:a"),
        "checks.0: 'file_exist:a': unknown check kind 'file_exist' (known: exit_code,",
    ),
    "a malformed check of a node": (
        appended('[[nodes]]\nid = "a"\nchecks = ["exit_code:0", "exit_code:none"]'),
        "nodes.0.checks.1: 'exit_code:none': malformed check",
    ),
    "a check of a fact that was not declared": (
        SMALLEST.replace("file_exists:a", "!symbolic:done=1") + '\n[symbolics.declared]\nx = "tool"',
        "checks.0: '!symbolic:done=1': symbolics.declared has no 'done'",
    ),
    "no TOML": ("[task", "is not TOML: "),
    "a key twice": ('[task]\ngoal = "a"\ngoal = "b"', "is not TOML: Cannot overwrite a value"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, text)

    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "task.toml"))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"No such file or directory .*'agentloop new NAME' makes one"):
        load_task(tmp_path / "nowhere")


def test_a_folder_without_a_task_is_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"task\.toml: No such file"):
        load_task(tmp_path)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_bytes(b"# \xff\n")

    with pytest.raises(TaskError, match="is not UTF-8 at byte 2"):
        load_task(tmp_path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_bytes(b"#" * (1024 * 1024 + 1))

    with pytest.raises(TaskError, match="more than 1048576 bytes"):
        load_task(tmp_path)


# -------------------------------------------------------------------------------- overrides


@pytest.mark.parametrize(
    ("override", "limits"),
    [
        ("limits.max_iterations=3", {"max_iterations": 3}),
        (" limits.max_iterations = 3", {"max_iterations": 3}),
        ("limits.parallel_tool_calls=true", {"parallel_tool_calls": True}),
        ("limits.commit=cycle", {"commit": "cycle"}),
        ('limits.commit="cycle"', {"commit": "cycle"}),
    ],
)
def test_a_setting_can_be_overridden(tmp_path: Path, override: str, limits: dict[str, object]) -> None:
    assert load(tmp_path, SMALLEST, overrides=[override]).limits == limits


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("limits", "'limits' is not KEY=VALUE"),
        ("=3", "'=3' is not KEY=VALUE"),
        ("limits.max_iterations=three", "limits.max_iterations: 'three' is not of type 'integer'"),
        ("limits.max_iteratons=3", "did you mean 'max_iterations'?"),
        ("task.goal.x=3", "'task.goal.x' cannot be set: 'goal' is no table"),
    ],
)
def test_a_wrong_override_is_told(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, SMALLEST, overrides=[override])

    assert message in str(caught.value)


# ----------------------------------------------------------------------------------- schema


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(task_schema())


def test_every_limit_is_an_option_of_the_loop_with_its_own_name() -> None:
    known = {*LoopOptions.__annotations__, *LoopingOptions.__annotations__, "inner_max_iterations"}

    assert set(task_schema()["properties"]["limits"]["properties"]) <= known


def test_the_defaults_the_schema_tells_are_those_of_the_loop() -> None:
    limits = task_schema()["properties"]["limits"]["properties"]
    fields = LoopOptions.__struct_fields__
    defaults = dict(zip(reversed(fields), reversed(LoopOptions.__struct_defaults__), strict=False))

    for name, row in limits.items():
        if "default" in row and name != "inner_max_iterations":
            assert defaults[name] == row["default"], name
    assert defaults["max_iterations"] == limits["inner_max_iterations"]["default"] == 10
