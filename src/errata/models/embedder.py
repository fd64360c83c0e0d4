"""Texts to unit vectors: all-MiniLM-L6-v2 in this process, or an OpenAI-compatible endpoint."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from errata.errors import InvalidInput, MalformedAnswer, ModelError, ModelTimeout, ModelUnavailable
from errata.models import weights
from errata.models.bounds import check_timeout
from errata.models.sources import Progress
from errata.models.threads import in_thread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Batches of 1, 8 and 32 cost the same 3.7 ms a text on one thread; small ones bound the memory.
BATCH = 16
TOKENS = 256


class MiniLM:
    """all-MiniLM-L6-v2, int8, through onnxruntime on one thread: 384 dimensions, about 4 ms a text.

    Text beyond 256 tokens is left out. Weights (23 MB) are fetched at the first call into `cache`,
    unless `path` and `tokenizer` name files that have them. A vector does not depend on the texts
    it was asked for with.
    """

    def __init__(
        self,
        *,
        path: Path | None = None,
        tokenizer: Path | None = None,
        cache: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._path, self._tokenizer_path = path, tokenizer
        self._cache, self._progress = cache, progress
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the vectors' space."""
        return "minilm-int8"

    @property
    def dimensions(self) -> int:
        """384."""
        return 384

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A float32 array with a row of length 1 a text, in order.

        Raises ModelUnavailable, WeightsError.
        """
        if self._loaded is None:
            fetch = partial(weights.fetch, cache=self._cache, progress=self._progress)
            model = await fetch("minilm-int8", path=self._path)
            words = await fetch("minilm-tokenizer", path=self._tokenizer_path)
            await in_thread(partial(self._load, model, words))
        rows = await in_thread(partial(self._rows, list(texts)))
        return cast("Sequence[Sequence[float]]", rows)  # what an array is, but for its type

    def _load(self, model: Path, words: Path) -> None:
        with self._lock:
            if self._loaded is not None:
                return
            runtime = _needed("onnxruntime")
            tokenizer = _needed("tokenizers").Tokenizer.from_file(str(words))
            tokenizer.enable_truncation(TOKENS)
            tokenizer.enable_padding()
            options = runtime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            session = runtime.InferenceSession(
                str(model), options, providers=["CPUExecutionProvider"]
            )
            self._loaded = tokenizer, session

    def _rows(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        rows = np.empty((len(texts), self.dimensions), np.float32)
        by_length = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        for start in range(0, len(texts), BATCH):
            chosen = by_length[start : start + BATCH]
            rows[chosen] = self._batch([texts[n] for n in chosen])
        return rows

    def _batch(self, texts: list[str]) -> NDArray[np.float32]:
        """The mean over the tokens that are not padding, scaled to length 1."""
        import numpy as np

        assert self._loaded is not None
        tokenizer, session = self._loaded
        printable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encodings = tokenizer.encode_batch(printable)
        ids = np.array([e.ids for e in encodings], np.int64)
        mask = np.array([e.attention_mask for e in encodings], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = session.run(None, inputs)
        shown = mask[..., None].astype(np.float32)
        means = (states * shown).sum(axis=1) / shown.sum(axis=1)
        vectors: NDArray[np.float32] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors


class OpenAIEmbedder:
    """An OpenAI-compatible embeddings endpoint. `dimensions` is the length of its vectors.

    `url` None is OpenAI itself. `timeout` is in seconds a try; `retries` more are made. Without
    `api_key` the client library looks for a key in its own places. Raises InvalidInput.
    """

    def __init__(
        self,
        model: str,
        dimensions: int,
        *,
        url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 2,
    ) -> None:
        check_timeout(timeout)
        if retries < 0:
            raise InvalidInput("retries", retries, "an integer of at least 0")
        if dimensions < 1:
            raise InvalidInput("dimensions", dimensions, "an integer of at least 1")
        self._model, self._dimensions = model, dimensions
        self._url, self._key = url, api_key
        self._timeout, self._retries = timeout, retries

    @property
    def name(self) -> str:
        """The name of the vectors' space: the model and where it runs."""
        return f"{self._url}#{self._model}" if self._url else f"openai:{self._model}"

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector of length 1 a text, in order.

        Raises ModelUnavailable, ModelTimeout, MalformedAnswer, ModelError.
        """
        if not texts:
            return []
        openai = _needed("openai", "models")
        try:
            answer = await self._ask(openai, list(texts))
        except openai.APITimeoutError as error:
            raise ModelTimeout(f"{self.name} gave no answer within {self._timeout:g} s") from error
        except (openai.APIConnectionError, openai.AuthenticationError) as error:
            what = f"{self.name}: {error}; check the address and the key"
            raise ModelUnavailable(what) from error
        except openai.APIError as error:
            raise ModelError(f"{self.name}: {error}") from error
        except openai.OpenAIError as error:  # raised before anything was sent: no key
            raise ModelUnavailable(f"{self.name}: {error}") from error
        except ValueError as error:
            raise MalformedAnswer(f"{self.name} answered something else: {error}") from error
        data = getattr(answer, "data", None) or ()
        return self._rows([list(each.embedding) for each in data], len(texts))

    async def _ask(self, openai: Any, texts: list[str]) -> Any:
        key = self._key or ("none" if self._url else None)  # the client insists on some key
        async with openai.AsyncOpenAI(
            api_key=key, base_url=self._url, timeout=self._timeout, max_retries=self._retries
        ) as client:
            return await client.embeddings.create(
                model=self._model, input=texts, encoding_format="float"
            )

    def _rows(self, vectors: list[list[float]], wanted: int) -> list[list[float]]:
        shape = [len(vector) for vector in vectors]
        if shape != [self._dimensions] * wanted:
            what = f"{wanted} vectors of {self._dimensions} numbers were wanted"
            raise MalformedAnswer(f"{self.name}: {what}", str(shape))
        return [_unit(vector) for vector in vectors]


def _unit(vector: list[float]) -> list[float]:
    length = sum(x * x for x in vector) ** 0.5
    if not 0 < length < float("inf"):
        raise MalformedAnswer("a vector without a direction", str(vector))
    return [x / length for x in vector]


def _needed(module: str, extra: str = "embedded") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        what = f"embedding needs {module}: pip install 'errata[{extra}]'"
        raise ModelUnavailable(what) from error
