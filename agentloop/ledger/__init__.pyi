"""The public names, for type checkers."""

from agentloop.ledger.chain import NO_ENTRIES as NO_ENTRIES
from agentloop.ledger.chain import Chain as Chain
from agentloop.ledger.chain import chain_hash as chain_hash
from agentloop.ledger.chain import follow as follow
from agentloop.ledger.jsonlines import JsonLinesLedgerStore as JsonLinesLedgerStore
from agentloop.ledger.memory import MemoryLedgerStore as MemoryLedgerStore
from agentloop.ledger.reader import Entry as Entry
from agentloop.ledger.reader import LedgerReport as LedgerReport
from agentloop.ledger.reader import RunLedger as RunLedger
from agentloop.ledger.reader import find_run as find_run
from agentloop.ledger.recorder import LEDGER_VERSION as LEDGER_VERSION
from agentloop.ledger.recorder import Recorder as Recorder
from agentloop.ledger.summaries import summarize as summarize

__all__: tuple[str, ...]
