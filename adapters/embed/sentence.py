"""The static sentence model that the package wordllama carries: one vector a token, averaged.

Only the package's two files are read, its weights and its tokenizer; its own code is not run, as
it would look for the latter in the network. Loading takes about 0.1 s and 35 MB, a sentence about
40 us, the same numbers everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from graphstate.activation.embedding import Descriptor
from graphstate.errors import ErrorCode, VerbFailed

__all__ = ("SentenceEmbedder", "sentence_embedder")

_PACKAGE = "wordllama"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"


class SentenceEmbedder:
    """Texts that mean alike get similar vectors of 256 numbers, offline. Text without a word gives zeros.

    Raises:
        VerbFailed: InvalidInput, naming the extra, if the model or what reads it is not installed.
    """

    def __init__(self) -> None:
        folder = _folder()
        try:
            import numpy as np
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise _missing(f"the package {error.name}") from None
        self._numbers = np
        try:
            self._weights: Any = load_file(folder / _WEIGHTS)[_TENSOR]
            self._tokenizer: Any = Tokenizer.from_file(str(folder / _TOKENIZER))
        except (OSError, KeyError) as error:
            raise _missing(f"a file of {_PACKAGE} ({error})") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._descriptor = Descriptor(
            provider="sentence", model="wordllama-l2-supercat", dimensions=self._weights.shape[1], version="1"
        )

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return one vector of length 1 for each text."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [self._vector(text.ids) for text in encoded]

    def descriptor(self) -> Descriptor:
        """Return provider ``sentence``."""
        return self._descriptor

    def _vector(self, tokens: list[int]) -> list[float]:
        np = self._numbers
        if not tokens:
            return [0.0] * self._descriptor.dimensions
        mean = self._weights[tokens].astype(np.float64).mean(axis=0)
        length = float(np.sqrt((mean * mean).sum()))
        vector: list[float] = (mean / length if length else mean).tolist()
        return vector


def sentence_embedder() -> SentenceEmbedder:
    """Return the embedder: the entry point ``sentence`` of the embedders.

    Raises:
        VerbFailed: InvalidInput if the extra ``embed`` is not installed.
    """
    return SentenceEmbedder()


def _folder() -> Path:
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise _missing(f"the package {_PACKAGE}")
    return Path(found.submodule_search_locations[0])


def _missing(what: str) -> VerbFailed:
    return VerbFailed(
        ErrorCode.INVALID_INPUT,
        f"the embedder 'sentence' needs {what}, which comes with the extra 'embed'",
        {"hint": "pip install 'loopwright[embed]', or use embedder='ngrams', which needs nothing"},
    )
