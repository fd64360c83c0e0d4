"""Open models and embedders by name.

Each adapter is a module, imported when it is first needed: `embedded` runs a small
model on this machine, `remote` asks one on the network, `function` calls a function.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from heedful.errors import UnknownName
from heedful.models.contract import Embedder, Model, Progress
from heedful.validation import refuses_unknown_options

__all__ = ["FORMS", "open_embedder", "open_model"]

FORMS = (
    "embedded",
    "embedded:smollm2",
    "embedded:/path/to/file.gguf",
    "openai:NAME",
    "anthropic:NAME",
    "google:NAME",
    "http://127.0.0.1:8000/v1#NAME",
    "module:function",
)
EMBEDDED = "embedded"
PROVIDERS = ("openai", "anthropic", "google")
SCHEMES = ("http", "https")


@refuses_unknown_options
def open_model(
    name: str,
    *,
    cache: Path | None = None,
    threads: int | None = None,
    context: int = 4096,
    api_key: str | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Model:
    """Return the model called `name`; close it after use.

    `FORMS` shows the possible names. `cache`, `threads`, `context` (in tokens) and
    `progress` are for embedded models, `api_key` for models on the network. `timeout`
    limits each call, in seconds; None is 120 s on the network and else no limit.
    Weights are fetched at the first call. Raises UnknownName, InvalidInput, UsageError.
    """
    kind, _, rest = name.partition(":")
    if kind == EMBEDDED:
        from heedful.models.embedded import EmbeddedModel

        return EmbeddedModel(
            name,
            cache=cache,
            threads=threads,
            context=context,
            timeout=timeout,
            progress=progress,
        )

    has_provider = kind in PROVIDERS and rest
    has_address = kind in SCHEMES and name.partition("#")[2]
    if has_provider or has_address:
        from heedful.models.remote import RemoteModel

        return RemoteModel(name, api_key=api_key, timeout=timeout or 120.0)

    if names_function(name):
        from heedful.models.function import Function

        return Function(name, timeout=timeout)

    if name in ("", *PROVIDERS) or ":" in name or "/" in name:
        raise UnknownName("model", name, FORMS)
    # Nobody knows which provider has a model of this name.
    raise UnknownName("model", name, [form.replace("NAME", name) for form in FORMS])


def names_function(name: str) -> bool:
    """Return whether `name` has the form `module:function` of a model in Python."""
    module, _, function = name.partition(":")
    has_other_form = module in (EMBEDDED, *PROVIDERS, *SCHEMES)
    return bool(module and function) and not has_other_form and "/" not in name


@refuses_unknown_options
def open_embedder(
    name: str = "minilm", *, cache: Path | None = None, progress: Progress | None = None
) -> Embedder:
    """Return the embedder called `name`; its first call fetches the weights.

    Raises UnknownName.
    """
    if name != "minilm":
        raise UnknownName("embedder", name, ("minilm",))
    from heedful.models.embedder import MiniLM

    return MiniLM(cache=cache, progress=progress)


def embedder_here(cache: Path | None = None) -> bool:
    """Return whether the packages and the weights of the embedder are installed."""
    from heedful.models import weights

    files = map(weights.find, weights.EMBEDDER_WEIGHTS)
    is_fetched = all(file.cached(cache).is_file() for file in files)
    return is_fetched and all(map(find_spec, ("onnxruntime", "tokenizers")))


@cache
def installed_embedder() -> Embedder | None:
    """Return the embedder of this process if it is installed, or else None."""
    return open_embedder() if embedder_here() else None
