"""Data never becomes code: no evaluation, no pickles, no shell, no SQL or format made of values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import pytest

from tests.architecture.sources import ROOT, Module, calls, dotted, imports, sources

Rule: TypeAlias = Callable[[Module], Iterator[ast.AST]]

#: The one place where a task file's author names a factory as `python:module:factory`.
PYTHON_DOOR = "agentloop.tasks.parts"
#: Loads the file that it is given, for a task or a suite that its author named.
FILE_DOOR = "agentloop.modules"
#: They import what the literal table of a package names; test_public_names.py holds the tables.
LAZY_DOORS = {"agentloop._lazy", "graphstate._lazy"}
#: Loads the server that the name of a command stands for, from an installed package.
SERVER_DOOR = "graphstate.cli.servers"
#: Loads what makes vectors by the name under which an installed package offers it.
EMBEDDER_DOOR = "graphstate.verbs.embedders"

#: The only modules that write SQL.
SQL_MODULES = {
    f"graphstate.store.{name}"
    for name in (
        "activation",
        "db",
        "dependencies",
        "log",
        "policies",
        "projection",
        "replicas",
        "retrievals",
        "schema",
        "snapshot",
        "store",
        "successions",
        "surroundings",
        "survey",
        "tables",
        "vectors",
    )
}

#: The form of a step is put together from the names in the module's own tables.
OWN_TEMPLATES = {"agentloop.loop.record"}

EVALUATING = {"eval", "exec", "compile", "__import__", "execfile"}
EVALUATING_MODULES = {
    "pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml", "runpy", "code",
    "codeop", "imp", "jinja2", "mako",
}  # fmt: skip
SHELLS = re.compile(r"os\.(system|popen)|subprocess\.get(status)?output|.*\.?create_subprocess_shell")
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT|REPLACE|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|"
    r"RELEASE|WITH|ATTACH|DETACH|VACUUM|REINDEX|ANALYZE)\s"
)
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


def evaluation(module: Module) -> Iterator[ast.AST]:
    for call, name in calls(module.tree):
        if name.removeprefix("builtins.") in EVALUATING:
            yield call


def evaluating_modules(module: Module) -> Iterator[ast.AST]:
    for node, name in imports(module.tree):
        if name.partition(".")[0] in EVALUATING_MODULES:
            yield node


def computed_imports(module: Module) -> Iterator[ast.AST]:
    """A literal name is an import like any other; so is one below a package of ours."""
    if module.name in {PYTHON_DOOR, FILE_DOOR, SERVER_DOOR, EMBEDDER_DOOR, *LAZY_DOORS}:
        return
    for call, name in calls(module.tree):
        loads_module = name.endswith("import_module") and not _is_ours(call.args[0])
        # The first is how a plug-in is loaded from an entry point, the others from a file.
        if loads_module or name.rpartition(".")[2] in {"load_module", "exec_module", "entry_points"}:
            yield call


def _is_ours(name: ast.expr) -> bool:
    if isinstance(name, ast.JoinedStr):
        first = name.values[0]
        return isinstance(first, ast.Constant) and str(first.value).startswith(("agentloop.", "graphstate."))
    return isinstance(name, ast.Constant)


def shells(module: Module) -> Iterator[ast.AST]:
    for call, name in calls(module.tree):
        by_keyword = any(
            word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False)
            for word in call.keywords
            if name.partition(".")[0] in {"subprocess", "anyio", "asyncio", "trio"}
        )
        # anyio takes a text for a shell's command line and a sequence for a program's arguments.
        by_text = name in {"anyio.open_process", "anyio.run_process"} and _is_text(call.args[0])
        if by_keyword or by_text or SHELLS.fullmatch(name):
            yield call


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def sql_elsewhere(module: Module) -> Iterator[ast.AST]:
    if module.name in SQL_MODULES:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value):
            yield node


def sql_of_values(module: Module) -> Iterator[ast.AST]:
    """Inside a function SQL is a literal or a constant; at module level constants may be put together."""
    if module.name not in SQL_MODULES:
        return
    for function in ast.walk(module.tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _computed_sql(function)


def _computed_sql(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        first = _first_part(node)
        text = first.value if isinstance(first, ast.Constant) else None
        from_literal = isinstance(text, str) and STATEMENT.match(text)
        from_constant = first is not None and CONSTANT.fullmatch(dotted(first)) and _adds_text(node)
        if from_literal or from_constant:
            yield node


def _adds_text(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and _is_text(node.right)


def _first_part(node: ast.AST) -> ast.expr | None:
    """Return what a text that is put together begins with."""
    if isinstance(node, ast.JoinedStr):
        return node.values[0]
    if isinstance(node, ast.BinOp):
        return node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return node.func.value
    return None


def templates_from_data(module: Module) -> Iterator[ast.AST]:
    """A template is a literal or a constant of the module, never a value."""
    for call, _ in calls(module.tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"format", "format_map"}:
            template = call.func.value
            if not (isinstance(template, ast.Constant) or CONSTANT.fullmatch(dotted(template))):
                yield call
    for node in ast.walk(module.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            formats = isinstance(node.right, (ast.Tuple, ast.Dict))
            if formats and not isinstance(node.left, ast.Constant) and module.name not in OWN_TEMPLATES:
                yield node


RULES: tuple[Rule, ...] = (
    evaluation,
    evaluating_modules,
    computed_imports,
    shells,
    sql_elsewhere,
    sql_of_values,
    templates_from_data,
)

#: What each rule must find, so that a rule that finds nothing any more is noticed.
OFFENCES: Mapping[Rule, str] = {
    evaluation: "eval(text)\nexec(text)\nbuiltins.compile(text, 'x', 'exec')\n__import__(name)",
    evaluating_modules: "import pickle\nfrom marshal import loads\ndef f():\n    import shelve",
    computed_imports: "importlib.import_module(name)\nimport_module(f'{x}.y')\nspec.loader.exec_module(m)",
    shells: "subprocess.run(a, shell=True)\nanyio.open_process(f'ls {x}')\nos.system(x)\n"
    "asyncio.create_subprocess_shell(x)",
    sql_elsewhere: "run('SELECT * FROM node')\nrun(f'DELETE FROM {table}')",
    sql_of_values: "def f():\n    run(f'SELECT {x}')\n    run('DELETE FROM ' + x)\n    run('SELECT %s' % x)\n"
    "    run('SELECT {}'.format(x))\n    run(_SELECT + f' WHERE {x}')",
    templates_from_data: "template.format(1)\ntext % (1, 2)\nself.text.format_map(x)",
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_source_file_breaks_the_rule(rule: Rule) -> None:
    assert [module.at(node) for module in sources() for node in rule(module)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_each_offence(rule: Rule) -> None:
    text = OFFENCES[rule]
    name = "graphstate.store.log" if rule is sql_of_values else "agentloop.example"
    module = Module(name, ROOT / "example.py", ast.parse(text))
    found = {getattr(node, "lineno", 0) for node in rule(module)}
    expected = {at for at, line in enumerate(text.splitlines(), 1) if not line.startswith("def ")}
    assert found == expected
