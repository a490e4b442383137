"""The commands as a table: one row each, read by the program, its help, the reference and the tests.

A command names a verb of the facade and hands it the words and flags that were given, under the
verb's own parameter names. The few that show something else than a verb's answer have a
function of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from graphstate.cli.arguments import (
    COUNT,
    JSON,
    NAMES,
    NUMBER,
    NUMBERS,
    OBJECT,
    SWITCH,
    TEXT,
    TRUTH,
    Flag,
    Usage,
    Word,
)
from graphstate.rendering import visible

__all__ = ("COMMANDS", "EVERYWHERE", "FLAGS", "GROUPS", "Command", "Opens", "Place", "Shown", "help_text")

#: What happens to the file: it is read (no byte changes), changed, changed or made if absent,
#: read without words and changed with them, read and changed with ``--log``, left alone, or opened
#: by the command itself.
Opens: TypeAlias = Literal[
    "reads", "changes", "makes", "changes with words", "changes with --log", "nothing", "itself"
]


class Place(NamedTuple):
    """The file, and who acts on it, for a command that opens it itself."""

    path: str
    actor: str
    trust: str
    key: bytes | None = None
    debug: bool = False


class Shown(NamedTuple):
    """What a command prints if its verb's answer alone is not it."""

    value: Any
    #: what a person sees instead of the JSON
    text: str | None = None
    exit_code: int = 0
    #: the command has written its answer itself
    printed: bool = False


#: Of commands that make vectors; the program reads it when it opens the graph.
EMBEDDER = Flag(
    "embedder", "hashing, ngrams, sentence or another one; if absent that of the graph's vectors", TEXT
)


class Command(NamedTuple):
    """One row of the table."""

    name: str
    help: str
    opens: Opens
    words: tuple[Word, ...] = ()
    flags: tuple[Flag, ...] = ()
    #: the verb, if it is not the name in snake_case
    verb: str = ""
    #: instead of the verb; its first argument is None if no file is opened, or the `Place`
    run: Callable[..., Any] | None = None
    #: `run` writes while it runs, and is told of ``--json`` as ``as_json``
    live: bool = False
    #: who acts, and how far that is trusted, unless flags say otherwise
    actor: str = "developer"
    trust: str = "person"
    #: texts become vectors: the graph is opened with an embedder
    embeds: bool = False

    @property
    def usage(self) -> str:
        shown = [word.shown for word in self.words] + [f"[{flag.shown}]" for flag in self.all_flags]
        return " ".join(("adaptogen", self.name, *shown))

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        return (*self.flags, EMBEDDER) if self.embeds else self.flags

    @property
    def verb_name(self) -> str:
        return self.verb or self.name.replace("-", "_")

    def call(self, graph: Any, values: dict[str, Any]) -> Any:
        """Run the command; the answer is a `Result`, a plain value or a `Shown`."""
        if self.run is not None:
            return self.run(graph, **values)
        given = dict(values)
        words = [given.pop(word.name) for word in self.words if word.name in given]
        return getattr(graph, self.verb_name)(*words, **given)


# -------------------------------------------------------------- commands that are more than a verb


def _get(graph: Any, id: str) -> Shown:
    node = graph.get_node(id)
    return Shown(node, exit_code=0 if node is not None else 1)


def _cursor(graph: Any, nodes: list[str], **given: Any) -> Any:
    return graph.set_cursor(nodes, **given) if nodes else graph.cursor()


def _history(graph: Any, **filters: Any) -> Shown:
    entries = graph.history(**{"limit": 20} | filters)
    return Shown(
        entries, "\n".join(f"{entry.seq}\t{visible(entry.type)}\t{entry.summary}" for entry in entries)
    )


def _text(verb: str) -> Callable[[Any], Shown]:
    """A command that shows what a verb returns as text."""

    def run(graph: Any) -> Shown:
        text = getattr(graph, verb)()
        return Shown(text, text)

    return run


def _watch(graph: Any, **options: Any) -> Shown:
    from graphstate.cli.watch import watch

    watch(graph, **options)
    return Shown(None, printed=True)


def _reembed(graph: Any, **options: Any) -> Any:
    from graphstate.cli.reembedding import reembed

    return reembed(graph, **options)


def _changes(graph: Any, **given: Any) -> Any:
    return graph.changes(**given)


def _locks(graph: Any) -> Shown:
    held = graph.locks()
    lines = [f"{lock.scope}\t{lock.id}\t{lock.actor}\t{visible(lock.reason)}" for lock in held]
    return Shown(held, "\n".join(lines) or "(none)")


def _status(graph: Any) -> Shown:
    now = graph.orient()
    value = {
        "cursor": now.cursor,
        "moves": now.suggestions,
        "ready": graph.ready(),
        "violations": now.violations,
        "seq": now.seq,
    }
    return Shown(value, graph.render())


def _validate(graph: Any) -> Shown:
    report = graph.validate()
    return Shown(report, exit_code=0 if report.ok else 1)


def _repair(graph: Any, **given: Any) -> Any:
    answer = graph.repair(**given)
    return Shown(answer.value, exit_code=0 if answer.value.ok else 1) if answer.ok else answer


def _plan(graph: Any, *, spec: Any = None, **given: Any) -> Any:
    if spec is None:
        raise Usage("plan needs --spec JSON (or @FILE, or - for standard input)")
    return graph.plan(spec, **given)


def _verify(graph: Any, **options: Any) -> Shown:
    report = graph.verify_integrity(**options)
    return Shown(report, exit_code=0 if report.ok else 1)


def _head(graph: Any) -> Shown:
    head = graph.head()
    seq, _, digest = head.partition(":")
    return Shown({"seq": int(seq), "hash": digest}, head)


def _compact(graph: Any, **given: Any) -> Any:
    return graph.compact(**given)


def _export(graph: Any, file: str = "-", **options: Any) -> Any:
    if file != "-":
        answer = graph.export(file, **options)
        if not answer.ok:
            return answer
        done = answer.value
        return Shown(done, f"{file}: {done.events} events, {done.bytes} bytes, head {done.head}")
    if sys.stdout is None or sys.stdout.isatty():
        raise Usage("a bundle is for a file or a pipe: adaptogen export FILE")
    answer = graph.export(sys.stdout.buffer)
    return Shown(answer.value, printed=True) if answer.ok else answer


def _import(place: Place, file: str, **options: Any) -> Shown:
    from graphstate.adaptogen import Adaptogen

    if file == "-" and sys.stdin is None:
        raise Usage("standard input is closed, there is nothing to read for -")
    with Adaptogen.import_state(
        place.path, sys.stdin.buffer if file == "-" else file, actor=place.actor, trust=place.trust,
        durability="power", **options,
    ) as graph:  # fmt: skip
        done = graph.imported
    assert done is not None
    pinned = "" if done.pinned else " (unpinned)"
    left = f", {done.left_out} left out" if done.left_out else ""
    return Shown(done, f"{place.path}: {done.imported} events from {done.head}{pinned}{left}")


def _mcp(place: Place, **options: Any) -> Shown:
    from graphstate.cli.servers import serve

    return Shown(None, exit_code=serve("mcp", place, **options), printed=True)


def _branch(graph: Any, file: str) -> Any:
    answer = graph.branch(file)
    if not answer.ok:
        return answer
    with answer.value as branch:
        value = {"file": file, "fork": branch.fork()}
    return Shown(value, f"{file} branches off at {value['fork']}")


def _merge(graph: Any, file: str, **options: Any) -> Any:
    from graphstate.adaptogen import Adaptogen

    with Adaptogen.open(file, seed=False, read_only=True) as branch:
        return graph.merge(branch, **options)


def _memory_class(graph: Any, kind: str, memory_class: str | None = None, **given: Any) -> Any:
    return graph.register_memory_class(kind, memory_class, **given)


def _working_memory(graph: Any, **options: Any) -> Any:
    return graph.working_memory(**options)


def _weights(graph: Any, **options: Any) -> Any:
    return graph.weights(**options)


def _describe(_: None) -> Any:
    from graphstate.manifest import describe

    return describe()


# ------------------------------------------------------------------------------------- the table

_ID = Word("id", "the node", TEXT)
_TO = Word("to", "the node to move to", TEXT)
_NAME = Word("name", "the checkpoint", TEXT)
_VARS = Flag("vars", "object that guards read as vars", OBJECT)
_HEAD = Flag("head", "move this head, if the cursor has several", TEXT)
_ZONE = Word("name", "the zone", TEXT)
_INTRA = Flag("intra", "off, soft or hard inside; soft if absent", TEXT)
_BOUNDARY = Flag("boundary", "off, soft or hard for moves in and out; hard if absent", TEXT)
_LOCKED = (
    Word("scope", "edge, zone, tunables or cursor", TEXT),
    Word("id", "the edge, the zone, or the actor whose cursor it is; none for tunables", TEXT, optional=True),
)
_MEMBER = Word("node", "the node", TEXT)
_WHY = Flag("reason", "why, kept in the event", TEXT)
_EDGE = Flag("edge-id", "this very edge", TEXT)
_CAUSE = Flag("cause", "text that makes the call happen once: repeated, it gets the first answer", TEXT)
_AGE = Flag("min-age", "events that a node must have been left alone to be set aside", COUNT)
_VERSION = Flag("expect-version", "fail with Conflict unless it is at this version; 0: must not exist", COUNT)

_ON_CONFLICT = Flag(
    "on-conflict", "fail, ours or theirs where both sides changed something; fail if absent", TEXT
)

_PROVENANCE = Flag("memory", "object: memory_class, confidence, source, observed_at, ...", OBJECT)
_AT = Flag("at", "the moment, in ms; now if absent", COUNT)
_AMOUNT = Word("amount", "how much, may be negative", NUMBER)
_SCOPE = Flag("scope", "whose weights of signals, global if absent", TEXT)
_CONTEXT = Flag("context", "in this context", TEXT)
_ALSO_SUPERSEDED = Flag("include-superseded", "also of nodes whose place another one took", SWITCH)
_LOG = Flag("log", "remember it in the file, for feedback and explain-memory", SWITCH)
_SEARCH = (
    Flag("vector", "the vector of the text, as an array of numbers", NUMBERS),
    Flag("limit", "at most so many, 20 if absent", COUNT),
    _SCOPE,
    _CONTEXT,
    Flag("seeds", "at most so many nodes that resemble the query, 50 if absent", COUNT),
    Flag("depth", "edges that activation spreads over", COUNT),
    Flag("edge-types", "follow these alone: kinds, and labels of references, comma-separated", NAMES),
    Flag("direction", "out, in or both; out if absent", TEXT),
)

GROUPS: Mapping[str, tuple[Command, ...]] = {
    "inspect": (
        Command("status", "cursor, ranked moves, what is ready", "reads", run=_status),
        Command("render", "the same as a picture in text", "reads", run=_text("render")),
        Command("suggest", "legal moves, best first, with the terms of their scores", "reads", (), (_VARS,)),
        Command(
            "explain",
            "how a move would be decided",
            "reads",
            (_TO,),
            (_EDGE, _HEAD, _VARS),
            "explain_transition",
        ),
        Command(
            "orient",
            "everything about the moment: cursor, moves, what is ready, last events",
            "reads",
            (),
            (_VARS,),
        ),
        Command("legal-moves", "moves that are not denied", "reads", (), (_VARS,)),
        Command(
            "ready",
            "nodes whose prerequisites are done",
            "reads",
            (Word("done", "nodes that are done", TEXT, many=True),),
        ),
        Command("topo", "all nodes, prerequisites first", "reads"),
        Command("get", "a node; null and exit code 1 if there is none", "reads", (_ID,), run=_get),
        Command(
            "recall",
            "nodes that meet every condition",
            "reads",
            (),
            (
                Flag("id", "with this id", TEXT),
                Flag("text", "with all these words in label, payload or tags", TEXT),
                Flag("kind", "of this kind", TEXT),
                Flag("tag", "with this tag", TEXT),
                Flag("status", "active, archived or deprecated", TEXT),
                Flag("embedding", "nearest to this array of numbers first", NUMBERS),
                Flag("like", "nearest in meaning to this text first", TEXT),
                Flag("as-of", "what was valid at this moment, in ms", COUNT),
                Flag("limit", "at most so many, 50 if absent", COUNT),
            ),
            embeds=True,
        ),
        Command(
            "history",
            "the newest events, oldest first",
            "reads",
            (Word("limit", "how many, 20 if absent", COUNT, optional=True),),
            (
                Flag("type", "of this type", TEXT),
                Flag("node", "about this node", TEXT),
                Flag("edge", "about this edge", TEXT),
                Flag("by", "by this actor", TEXT, "actor"),
                Flag("from-seq", "from this event on", COUNT),
            ),
            run=_history,
        ),
        Command(
            "changes",
            "the events behind one, oldest first, and what to ask with the next time",
            "reads",
            (Word("after", "the last event that is known, 0 if absent", COUNT, optional=True),),
            (
                Flag("cuts", "the number of rollbacks in the answer before", COUNT),
                Flag("limit", "at most so many, 100 if absent", COUNT),
            ),
            run=_changes,
        ),
        Command(
            "watch",
            "a live view: a picture on a terminal, else a line for each new event, until it is interrupted",
            "reads",
            (),
            (
                Flag("present", "show which memories are present instead, whenever that changes", SWITCH),
                Flag("context", "with --present: as they are in this context", TEXT),
                Flag("after", "begin behind this event; with the next one if absent", COUNT),
                Flag("interval-ms", "how often to look, 10 to 60000, 500 if absent", COUNT),
                Flag("limit", "end after so many events", COUNT),
            ),
            run=_watch,
            live=True,
        ),
        Command("graph", "a flowchart for Mermaid", "reads", run=_text("to_mermaid")),
        Command("dot", "a digraph for Graphviz", "reads", run=_text("to_dot")),
        Command("optimize", "edits that experience suggests, the most certain first", "reads", (), (_AGE,)),
        Command("validate", "check graph and log; exit code 1 if something is wrong", "reads", run=_validate),
        Command("metrics", "counts of the whole graph", "reads"),
        Command("head", "the end of the log, to be kept elsewhere", "reads", run=_head),
        Command(
            "verify",
            "check the hash chains; exit code 1 if one is broken",
            "reads",
            (),
            (
                Flag("deep", "everything from the start, and the projection against a replay", SWITCH),
                Flag("expect-head", "what head said once: fail if that event is absent or another", TEXT),
            ),
            "verify_integrity",
            _verify,
        ),
        Command("describe", "verbs, error codes, tunables as data", "nothing", run=_describe),
    ),
    "change": (
        Command(
            "remember",
            "create a node or change it; what is not given stays",
            "makes",
            (_ID,),
            (
                Flag("kind", "such as fact or task", TEXT),
                Flag("label", "a name for people", TEXT),
                Flag("payload", "the memory itself, replaced", JSON),
                Flag("patch", "object merged into the payload; null removes a key", OBJECT),
                Flag("tags", "its tags, replaced", NAMES),
                Flag("status", "active, archived or deprecated", TEXT),
                Flag("embedding", "array of numbers", NUMBERS),
                Flag("embed", "make the vector from label and payload", SWITCH),
                _PROVENANCE,
                _VERSION,
                _CAUSE,
            ),
            embeds=True,
        ),
        Command(
            "reembed",
            "make the vectors of all nodes that have none of this model; goes on where it was interrupted",
            "changes",
            (),
            (
                Flag("stale", "only of nodes that had one", SWITCH),
                Flag("batch", "texts the model is given at once, 64 if absent", COUNT),
                Flag("limit", "stop after so many nodes", COUNT),
                _CAUSE,
            ),
            run=_reembed,
            live=True,
            embeds=True,
        ),
        Command(
            "link",
            "add an edge",
            "changes",
            (Word("src", "where it starts", TEXT), Word("dst", "where it leads", TEXT)),
            (
                Flag("id", "made up if absent", TEXT),
                Flag("kind", "transition, dependency or reference", TEXT),
                Flag("label", "a name for people", TEXT),
                Flag("guard", "condition on the move", TEXT),
                Flag("enforcement", "what a failed guard does: off, soft or hard", TEXT),
                Flag("weight", "prior, from 0; 1 if absent", NUMBER),
                Flag("upsert", "replace the edge that has this id", SWITCH),
                _VERSION,
                _WHY,
                _CAUSE,
            ),
        ),
        Command(
            "depend",
            "let a node depend on another; a cycle is refused with its path",
            "changes",
            (Word("node", "what waits", TEXT), Word("prereq", "what comes first", TEXT)),
            (Flag("id", "made up if absent", TEXT), Flag("label", "a name for people", TEXT), _CAUSE),
        ),
        Command(
            "unlink",
            "remove an edge",
            "changes",
            (Word("edge_id", "the edge", TEXT),),
            (_VERSION, _WHY, _CAUSE),
        ),
        Command(
            "enforce",
            "set what a failed guard of an edge does",
            "changes",
            (Word("edge_id", "the edge", TEXT), Word("mode", "off, soft or hard", TEXT)),
            (_VERSION, _WHY, _CAUSE),
            "set_enforcement",
        ),
        Command("archive", "put a node aside", "changes", (_ID,), (_CAUSE,)),
        Command("deprecate", "mark a node as superseded", "changes", (_ID,), (_CAUSE,)),
        Command(
            "cursor",
            "print the cursor, or set it",
            "changes with words",
            (Word("nodes", "where it shall stand", TEXT, many=True),),
            (
                Flag(
                    "expect-nodes", "fail with Conflict unless it stands on these now, comma-separated", NAMES
                ),
                _WHY,
                _CAUSE,
            ),
            "set_cursor",
            _cursor,
        ),
        Command(
            "transition",
            "move the cursor; exit code 0 also when the move is denied",
            "changes",
            (_TO,),
            (_EDGE, _HEAD, _VARS, _CAUSE),
        ),
        Command(
            "step",
            "take the best move, or the best to a node, and reward it",
            "changes",
            (Word("to", "the node to move to", TEXT, optional=True),),
            (Flag("reward", "credit the move with this", NUMBER), _VARS, _CAUSE),
        ),
        Command(
            "reward",
            "credit the last move, or the named edge",
            "changes",
            (Word("value", "0 and more is a success", NUMBER),),
            (
                _EDGE,
                Flag("trace", "credit the moves before it too, each one less", SWITCH),
                Flag("depth", "how many moves a trace reaches back, 5 if absent", COUNT),
                Flag("lambda", "share of credit that each earlier move keeps", NUMBER, "lambda_"),
                _CAUSE,
            ),
        ),
    ),
    "memory": (
        Command(
            "top",
            "what is most present now",
            "reads",
            (),
            (
                Flag("limit", "at most so many, 10 if absent", COUNT),
                _CONTEXT,
                Flag("context-fallback", "what was never there counts with its score", SWITCH),
                Flag("min-score", "only what is more present than this", NUMBER),
                _ALSO_SUPERSEDED,
                _AT,
            ),
            "top_activated",
        ),
        Command("activation", "how present a node is, part by part", "reads", (_ID,), (_AT,)),
        Command("effective", "how present a node is", "reads", (_ID,), (_CONTEXT, _ALSO_SUPERSEDED, _AT)),
        Command("expand", "the nodes that one was made of", "reads", (_ID,)),
        Command(
            "reinforce",
            "make a node more present",
            "changes",
            (_ID, _AMOUNT),
            (_CONTEXT, Flag("outcome", "count that it was shown, useful or harmful", TEXT), _WHY, _CAUSE),
        ),
        Command(
            "reinforce-all",
            "several at once, all of them or none",
            "changes",
            (
                Word(
                    "items", "array of objects with id, amount, and reason, context, outcome if wanted", JSON
                ),
            ),
            (_CAUSE,),
        ),
        Command("suppress", "hold a node back", "changes", (_ID, _AMOUNT), (_CONTEXT, _WHY, _CAUSE)),
        Command(
            "release",
            "take a suppression back",
            "changes",
            (_ID,),
            (Flag("amount", "so much of it; all if absent", NUMBER), _CONTEXT, _WHY, _CAUSE),
        ),
        Command(
            "supersede",
            "let a node take the place of another one",
            "changes",
            (Word("new", "the node that is right now", TEXT), Word("old", "the node it replaces", TEXT)),
            (_WHY, _CAUSE),
        ),
        Command(
            "unsupersede",
            "give a node its place back",
            "changes",
            (Word("old", "the node", TEXT),),
            (Flag("by", "only from this node; from all if absent", TEXT), _WHY, _CAUSE),
        ),
        Command(
            "consolidate",
            "let one node stand for several",
            "changes",
            (_ID, Word("sources", "the nodes it is made of, comma-separated", NAMES)),
            (
                Flag("suppress", "how much each source is held back, 0.6 if absent", NUMBER),
                Flag("kind", "such as fact or task", TEXT),
                Flag("label", "a name for people", TEXT),
                Flag("payload", "the memory itself, replaced", JSON),
                Flag("tags", "its tags, replaced", NAMES),
                Flag("embedding", "array of numbers", NUMBERS),
                _PROVENANCE,
                _WHY,
                _CAUSE,
            ),
        ),
        Command(
            "memory-class",
            "let nodes of a kind fade as a class does",
            "changes",
            (
                Word("kind", "the kind", TEXT),
                Word(
                    "memory_class",
                    "episodic, semantic, procedural, entity; none if absent",
                    TEXT,
                    optional=True,
                ),
            ),
            (_CAUSE,),
            run=_memory_class,
        ),
    ),
    "recall": (
        Command(
            "pulse",
            "what a question brings to mind, best first, and the id that feedback refers to",
            "changes with --log",
            (Word("query", "text that is searched for", TEXT),),
            (*_SEARCH, _ALSO_SUPERSEDED, Flag("as-of", "only what held at this time, in ms", COUNT), _LOG),
            embeds=True,
        ),
        Command(
            "absorb",
            "search, and reinforce what was found",
            "changes",
            (Word("query", "text that is searched for", TEXT),),
            (
                *_SEARCH,
                Flag("threshold", "least score that is reinforced", NUMBER),
                Flag("gain", "share of the score by which it is", NUMBER),
                Flag("habituate", "what is present already gains less", SWITCH),
                _CAUSE,
            ),
            embeds=True,
        ),
        Command(
            "spread",
            "what some nodes warm up around them, the warmest first",
            "reads",
            (Word("seeds", "ids, comma-separated", NAMES),),
            (
                Flag("limit", "at most so many, 20 if absent", COUNT),
                Flag("depth", "edges that activation spreads over", COUNT),
                Flag("decay", "0 to 1: what one edge leaves", NUMBER),
                Flag("fan-beta", "0 to 1: how far neighbours share, 0.5 if absent", NUMBER),
                Flag(
                    "edge-types",
                    "follow these alone: kinds, and labels of references, comma-separated",
                    NAMES,
                ),
                Flag("direction", "out, in or both; out if absent", TEXT),
            ),
        ),
        Command(
            "working-memory",
            "the memories that belong into a context window now, and why",
            "changes with --log",
            (Word("limit", "how many, 10 if absent", COUNT, optional=True),),
            (
                Flag("min-score", "only what is more present", NUMBER),
                _SCOPE,
                _CONTEXT,
                Flag("context-fallback", "what was never seen in it counts as it does everywhere", SWITCH),
                Flag("token-budget", "what all of them may cost together", COUNT),
                Flag("diversity", "0 to 1: how unlike each other they shall be", NUMBER),
                Flag("pinned", "these first, comma-separated", NAMES),
                Flag("density", "prefer what is present for few tokens", SWITCH),
                _ALSO_SUPERSEDED,
                _LOG,
            ),
            run=_working_memory,
        ),
        Command(
            "recognise",
            "whether something is known already, and what it might contradict",
            "reads",
            (Word("payload", "what would be remembered", JSON),),
            (
                Flag("kind", "of this kind", TEXT),
                Flag("label", "the label it would have", TEXT),
                Flag("vector", "its vector, as an array of numbers", NUMBERS),
                Flag("same", "cosine from which on it is the same, 0.97 if absent", NUMBER),
                Flag("limit", "at most so many that resemble it, 5 if absent", COUNT),
            ),
            embeds=True,
        ),
        Command(
            "explain-memory",
            "what a memory is worth now, where that comes from, and which searches showed it",
            "reads",
            (_ID,),
            verb="explain",
        ),
        Command(
            "feedback",
            "say whether a memory that a search showed was useful; once for each",
            "changes",
            (
                Word("retrieval_id", "the search, as pulse or working-memory said it", TEXT),
                _ID,
                Word("useful", "true or false", TRUTH),
            ),
            (
                Flag("rate", "how far weights move, 0.05 if absent", NUMBER),
                Flag("rule", "centred, contrast or additive; centred if absent", TEXT),
                Flag("scope", "whose weights; those of the search if absent", TEXT),
                Flag("signals", "object: what the search showed, if it is not remembered any more", OBJECT),
                _CAUSE,
            ),
        ),
        Command(
            "weights",
            "the weights of signals",
            "reads",
            (Word("scope", "whose, global if absent", TEXT, optional=True),),
            run=_weights,
        ),
        Command(
            "set-weights",
            "set weights of signals; the others stay",
            "changes",
            (Word("weights", "object: weight by signal", OBJECT),),
            (_SCOPE, _CAUSE),
        ),
    ),
    "evolution": (
        Command(
            "plan",
            "declare nodes, transitions, deps and cursor together; all of it or nothing",
            "makes",
            (),
            (Flag("spec", "object with any of nodes, transitions, deps, cursor", OBJECT), _CAUSE),
            run=_plan,
        ),
        Command("reweight", "let learned weights follow the rewards", "changes", (), (_CAUSE,)),
        Command(
            "self-iterate",
            "reweight and apply the safe proposals; nothing is kept if that breaks the graph",
            "changes",
            (),
            (_AGE, _CAUSE),
        ),
        Command("gc", "set nodes aside that nothing leads to", "changes", (), (_AGE, _CAUSE)),
        Command(
            "split",
            "copy a node and let some of its edges leave the copy",
            "changes",
            (
                Word("node_id", "the node", TEXT),
                Word("new_id", "its copy", TEXT),
                Word("edge_ids", "edges that leave the copy from now on", TEXT, many=True),
            ),
            (_VERSION, _CAUSE),
            "split_state",
        ),
        Command(
            "merge-states",
            "let one node take over another one",
            "changes",
            (Word("into", "the node that stays", TEXT), Word("gone", "the node that goes", TEXT)),
            (_VERSION, Flag("expect-gone-version", "the same for the node that goes", COUNT), _CAUSE),
        ),
        Command("pin", "keep a node out of garbage collection", "changes", (_ID,), (_CAUSE,)),
        Command("unpin", "let a node be collected again", "changes", (_ID,), (_CAUSE,)),
        Command(
            "repair",
            "mend what can be mended; exit code 1 if something is left",
            "changes",
            (),
            (_CAUSE,),
            run=_repair,
        ),
    ),
    "zones and locks": (
        Command(
            "zone-define",
            "fence nodes in, or define the zone anew",
            "changes",
            (_ZONE, Word("members", "the nodes, comma-separated", NAMES)),
            (_INTRA, _BOUNDARY, _VERSION, _WHY, _CAUSE),
            "define_zone",
        ),
        Command(
            "zone-enforce",
            "set one or both modes of a zone",
            "changes",
            (_ZONE,),
            (
                _INTRA._replace(help="off, soft or hard inside"),
                _BOUNDARY._replace(help="off, soft or hard for moves in and out"),
                _VERSION,
                _WHY,
                _CAUSE,
            ),
            "set_zone_enforcement",
        ),
        Command(
            "zone-add",
            "make a node a member",
            "changes",
            (_ZONE, _MEMBER),
            (_VERSION, _WHY, _CAUSE),
            "add_to_zone",
        ),
        Command(
            "zone-remove",
            "take a node out",
            "changes",
            (_ZONE, _MEMBER),
            (_VERSION, _WHY, _CAUSE),
            "remove_from_zone",
        ),
        Command("zone-list", "every zone with its members", "reads", verb="zones"),
        Command(
            "zone-delete",
            "remove a zone; its nodes stay",
            "changes",
            (_ZONE,),
            (_VERSION, _WHY, _CAUSE),
            "delete_zone",
        ),
        Command(
            "zone-derive",
            "find the nodes at and behind one that satisfy a predicate",
            "changes",
            (Word("seed", "where to start", TEXT),),
            (
                Flag("predicate", "a guard on each node, such as \"toTags has 'safe'\"; all if absent", TEXT),
                Flag("ratify", "define a zone over them", SWITCH),
                Flag("name", "the zone to define", TEXT),
                _INTRA,
                _BOUNDARY,
                _CAUSE,
            ),
            "derive_zone",
        ),
        Command(
            "lock",
            "bind models, tools and imports to a piece of policy",
            "changes",
            _LOCKED,
            (Flag("reason", "shown to whoever is refused", TEXT), _CAUSE),
            "lock_policy",
        ),
        Command("unlock", "take a lock away", "changes", _LOCKED, (_WHY, _CAUSE), "unlock_policy"),
        Command("locks", "what is locked, by whom and why", "reads", run=_locks),
    ),
    "durability": (
        Command("checkpoint", "name the present state", "changes", (_NAME,), (_CAUSE,)),
        Command(
            "rollback",
            "return to a checkpoint; later events are set aside, not deleted",
            "changes",
            (_NAME,),
            (Flag("reason", "kept with what is set aside", TEXT),),
        ),
        Command("checkpoints", "their names and places", "reads", verb="list_checkpoints"),
        Command("cuts", "what rollbacks and recoveries set aside", "reads"),
        Command("snapshot", "keep the live state, for rebuilding from here", "changes", (), (_CAUSE,)),
        Command(
            "compact",
            "remove the oldest events for good, after verifying everything",
            "changes",
            (Word("retain", "events that stay; the tunable retain if absent", COUNT, optional=True),),
            (_CAUSE,),
            run=_compact,
        ),
        Command("rebuild", "make nodes, edges and statistics again from the log", "changes"),
        Command("tunables", "all settings", "reads", verb="get_tunables"),
        Command(
            "set-tunable",
            "store a setting",
            "makes",
            (
                Word("key", "see tunables", TEXT),
                Word("value", "JSON, so text needs quotes: '\"greedy\"'", JSON),
            ),
            (_WHY, _CAUSE),
        ),
    ),
    "move": (
        Command(
            "export",
            "write the graph as a bundle; without FILE, or to -, for a pipe",
            "reads",
            (Word("file", "where; it must not exist", TEXT, optional=True),),
            (Flag("overwrite", "replace a file that exists", SWITCH),),
            run=_export,
        ),
        Command(
            "import",
            "take a bundle over, whole or not at all; the graph must be absent or empty",
            "itself",
            (Word("file", "the bundle; - for standard input", TEXT),),
            (
                Flag("merge", "the graph may hold events; its cursors stay", SWITCH),
                _ON_CONFLICT,
                Flag("expect-head", "refuse it unless its origin ended at this seq:hash", TEXT),
            ),
            run=_import,
        ),
        Command(
            "export-deltas",
            "what was added to memories since an earlier export, for other replicas; the first call begins",
            "changes",
            (),
            (
                Flag("since", "the cursor in the answer before; all if absent", TEXT),
                Flag("threshold", "sums smaller than this wait, 0.05 if absent", NUMBER),
                Flag("flush", "nothing waits", SWITCH),
                _CAUSE,
            ),
        ),
        Command(
            "import-deltas",
            "add what another replica exported, each part once",
            "changes",
            (Word("deltas", "the answer of export-deltas: JSON, @FILE, or - for standard input", OBJECT),),
            (_CAUSE,),
        ),
        Command(
            "branch",
            "copy the graph to a file that knows where it left this one",
            "reads",
            (Word("file", "where; it must not exist", TEXT),),
            run=_branch,
        ),
        Command(
            "merge",
            "bring back what a branch of this graph did",
            "changes",
            (Word("file", "the branch", TEXT),),
            (_ON_CONFLICT, _CAUSE),
            run=_merge,
        ),
    ),
    "serve": (
        Command(
            "mcp",
            "let agents work with the graph by the Model Context Protocol, over standard input and output; "
            "what they write is a model's unless --trust says otherwise",
            "itself",
            (),
            (
                Flag("http", "streamable HTTP on this machine instead", SWITCH),
                Flag("port", "where it listens, 8765 if absent; 0 takes a free one", COUNT),
                Flag("read-only", "offer only what changes nothing", SWITCH),
                Flag("tools", "offer memory or graph alone; both if absent", TEXT),
                EMBEDDER,
            ),
            run=_mcp,
            actor="mcp",
            trust="model",
        ),
    ),
}

COMMANDS: Mapping[str, Command] = {row.name: row for rows in GROUPS.values() for row in rows}

#: Flags that every command takes. They are the program's, no verb sees them.
EVERYWHERE = (
    Flag("db", "the file; else .agentloop/state.db here or above, else ./adaptogen.db", TEXT),
    Flag("actor", "who acts, and whose cursor moves; developer if absent, of mcp mcp", TEXT),
    Flag("trust", "developer, person, model, tool or import; person if absent, of mcp model", TEXT),
    Flag("key-file", "file whose bytes are the key of a keyed graph", TEXT),
    Flag("vectors", "show the numbers of vectors", SWITCH),
    Flag("json", "one line of JSON", SWITCH),
    Flag("debug", "show where an unexpected error came from", SWITCH),
    Flag("help", "show the usage of the command", SWITCH),
)

FLAGS: Mapping[str, Flag] = {
    flag.name: flag for flags in (*(row.all_flags for row in COMMANDS.values()), EVERYWHERE) for flag in flags
}


def help_text(command: Command | None) -> str:
    """Return the usage of a command, or of the program."""
    if command is not None:
        rows = [(word.shown, word.help) for word in command.words]
        rows += [(flag.shown, flag.help) for flag in (*command.all_flags, *EVERYWHERE)]
        return "\n".join((f"usage: {command.usage}", f"  {command.help}", "", *_columns(rows)))
    lines = ["usage: adaptogen COMMAND [--db FILE] [--json] ...", ""]
    for group, rows_ in GROUPS.items():
        lines += [f"{group}:", *_columns([(row.name, row.help) for row in rows_]), ""]
    lines += [
        "JSON is given as text, as @FILE or as - for standard input. -- ends the flags.",
        "adaptogen help COMMAND shows its words and flags.",
    ]
    return "\n".join(lines)


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name:{width}}  {text}" for name, text in rows]
