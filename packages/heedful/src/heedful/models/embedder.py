"""Two embedders: all-MiniLM-L6-v2 in this process, and any endpoint like OpenAI's."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from heedful.errors import MalformedAnswer, ModelUnavailable, install_line
from heedful.models import weights
from heedful.models.call import in_thread, replace_surrogates
from heedful.models.contract import Progress
from heedful.models.remote import RemoteModel
from heedful.validation import Document, check_integer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Held by the thread that loads a model: two would need twice the memory.
_loading = threading.Lock()


@cache
def _thread_pool(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process for embedding.

    The parameter `process` is its id: a forked process cannot use the parent's threads.
    """
    return ThreadPoolExecutor(os.cpu_count() or 1, "heedful-embedder")


class MiniLM:
    """The model all-MiniLM-L6-v2 (int8, 384 dimensions) in onnxruntime.

    A text takes about 4 ms; what follows its first 256 tokens is ignored. The first
    call fetches the weights (23 MB) into the folder `cache`. The vector of a text does
    not depend on the other texts of a call.
    """

    name = "minilm-int8"
    dimensions = 384

    def __init__(
        self, *, cache: Path | None = None, progress: Progress | None = None
    ) -> None:
        self._cache = cache
        self._progress = progress
        # Returns the vector of a text, once the model is loaded.
        self._loaded: Callable[[str], Any] | None = None

    def __getstate__(self) -> Document:
        # What is loaded stays in its process.
        return {**vars(self), "_loaded": None}

    @property
    def is_loaded(self) -> bool:
        """True once the model is in memory, which takes about 200 MB."""
        return self._loaded is not None

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return float32 unit vectors, one for each text, in order.

        Raises ModelUnavailable, WeightsError.
        """
        compute_vector = await self.load()

        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        pool = _thread_pool(os.getpid())
        run = asyncio.get_running_loop().run_in_executor

        # One text at a time: batches of 8 or 32 are not faster (3.7 ms a text), and a
        # batch of 64 needs 3 GB of memory.
        for index, text in enumerate(texts):
            vectors[index] = await run(pool, compute_vector, text)

        # An array of numpy behaves like a sequence of sequences.
        return cast("Sequence[Sequence[float]]", vectors)

    async def load(self) -> Callable[[str], Any]:
        """Return the function that makes the vector of a text.

        The first call takes about half a second, and fetches the weights if they are
        not there. Raises ModelUnavailable, WeightsError.
        """
        if self._loaded is None:
            await in_thread(_import_packages)  # fails early, before a download
            fetch = partial(weights.fetch, cache=self._cache, progress=self._progress)
            model_file = await fetch("minilm-int8")
            tokenizer_file = await fetch("minilm-tokenizer")
            await in_thread(partial(self._load_once, model_file, tokenizer_file))
        assert self._loaded is not None
        return self._loaded

    def _load_once(self, model_file: Path, tokenizer_file: Path) -> None:
        """Load the model, unless another thread has done so meanwhile."""
        with _loading:
            if self._loaded is None:
                parts = _load_model(model_file, tokenizer_file)
                compute_vector = partial(_vector_of, *parts)
                self._loaded = lru_cache(maxsize=1_000)(compute_vector)


def _import_packages() -> tuple[Any, Any]:
    """Return the modules onnxruntime and tokenizers. Raises ModelUnavailable."""
    try:
        return import_module("onnxruntime"), import_module("tokenizers")
    except ImportError as error:
        message = f"embedding needs {error.name}: {install_line('embedded')}"
        raise ModelUnavailable(message) from error


def _load_model(model_file: Path, tokenizer_file: Path) -> tuple[Any, Any]:
    """Return the tokenizer, and the session that runs the model on one thread."""
    runtime, tokenizers = _import_packages()
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(max_length=256)
    tokenizer.no_padding()

    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = runtime.InferenceSession(
        str(model_file), options, providers=["CPUExecutionProvider"]
    )
    return tokenizer, session


def _vector_of(tokenizer: Any, session: Any, text: str) -> "NDArray[np.float32]":
    """Return the mean of the token vectors of a text, scaled to length 1."""
    import numpy as np

    token_ids = tokenizer.encode(replace_surrogates(text)).ids
    batch = np.array([token_ids], np.int64)
    inputs = {
        "input_ids": batch,
        "attention_mask": np.ones_like(batch),
        "token_type_ids": np.zeros_like(batch),
    }
    (token_vectors,) = session.run(None, inputs)
    mean = token_vectors[0].mean(axis=0)
    return cast("NDArray[np.float32]", mean / np.linalg.norm(mean))


class OpenAIEmbedder:
    """An embedding model behind an OpenAI-compatible endpoint.

    `dimensions` is the length of a vector. Without `url`, the endpoint is OpenAI's;
    without `api_key`, the library looks for one. `timeout` limits a call, in seconds.
    Raises InvalidInput.
    """

    def __init__(
        self,
        model: str,
        dimensions: int,
        *,
        url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        check_integer("dimensions", dimensions)
        self.name: str = f"openai:{model}" if url is None else f"{url}#{model}"
        self.dimensions = dimensions
        self._remote = RemoteModel(self.name, api_key=api_key, timeout=timeout)

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one unit vector for each text, in order.

        Raises ModelError or a subclass of it.
        """
        if not texts:
            return []

        import numpy as np

        async with self._remote.library_call("embeddings"):
            from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel

            async with self._remote.provider() as provider:
                provider.client.max_retries = self._remote.retries
                model = OpenAIEmbeddingModel(self._remote.model, provider=provider)
                # As numbers, because some servers cannot send base64.
                result = await model.embed(
                    [replace_surrogates(text) for text in texts],
                    input_type="document",
                    settings={"extra_body": {"encoding_format": "float"}},
                )
            vectors = np.array(result.embeddings, np.float64)

        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        usable = (lengths > 0) & (lengths < np.inf)
        shape = (len(texts), self.dimensions)
        if vectors.shape != shape or not usable.all():
            raise MalformedAnswer(
                f"{self.name} answered vectors of shape {vectors.shape}, or a vector "
                f"that is 0 or not finite; expected is the shape {shape}"
            )
        return cast("list[list[float]]", (vectors / lengths).tolist())
