"""Models on the network: OpenAI, Anthropic, Google and servers with OpenAI's interface.

Each call opens a new connection and keeps no state, so calls may come from any event
loop.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast
from urllib.parse import quote, urlsplit

from heedful import errors
from heedful.loop.record import Usage
from heedful.models import call as calls
from heedful.models.answers import ending_of
from heedful.models.contract import Answer, Message, Options
from heedful.redact import redact
from heedful.validation import Fields, require

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model as ProviderModel, ModelRequestParameters
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

# Profiles of models that refuse a temperature; the library drops the seed by itself.
_FIXED_TEMPERATURE_PROFILES = (
    "openai_supports_reasoning",
    "anthropic_disallows_sampling_settings",
)
_OVERLOAD_ERROR = (
    errors.ModelUnavailable,
    "is overloaded, or the quota is used up; try later",
)
_MODEL_ERROR = (errors.ModelError, "failed")
_MALFORMED_ANSWER_ERROR: tuple[type[errors.ModelError], str] = (
    errors.MalformedAnswer,
    "did not answer with {wanted}",
)
# The error of heedful for each error of the library, by the nearest listed base class.
_LIBRARY_ERRORS: dict[str, tuple[type[errors.ModelError], str]] = {
    "ModelTimeoutError": (
        errors.ModelTimeout,
        "gave no answer in time; raise the timeout",
    ),
    "ModelContextWindowExceededError": (
        errors.PromptTooLong,
        "has no room for this prompt; shorten it",
    ),
    "ModelNotFoundError": (
        errors.ModelUnavailable,
        "is unknown there; check its name and the address",
    ),
    "ModelConnectionError": (
        errors.ModelUnavailable,
        "cannot be reached; check the address and that the server runs",
    ),
    "ModelRateLimitError": _OVERLOAD_ERROR,
    "ModelQuotaExceededError": _OVERLOAD_ERROR,
    "ModelUnavailableError": _OVERLOAD_ERROR,
    "ModelServerError": _MODEL_ERROR,
    "ModelRequestRejectedError": _MODEL_ERROR,
    "ModelHTTPError": _MODEL_ERROR,
    "ModelAPIError": _MALFORMED_ANSWER_ERROR,  # not a subclass: a body that is not JSON
    "UnexpectedModelBehavior": _MALFORMED_ANSWER_ERROR,
    "RuntimeError": _MODEL_ERROR,
}


class RemoteModel:
    """A chat model of a provider or of a server with OpenAI's interface.

    `name` is `openai:MODEL`, `anthropic:MODEL`, `google:MODEL` or `URL#MODEL`. Without
    `api_key`, the provider's library looks for a key. `timeout` limits a call, in
    seconds, including its `retries` after a refused connection or a busy server. Raises
    InvalidInput.
    """

    retries = 2

    def __init__(
        self, name: str, *, api_key: str | None = None, timeout: float | None = 120.0
    ) -> None:
        calls.check_timeout(timeout)
        self._kind, _, model = name.partition(":")

        self._url = ""
        if self._kind not in ("openai", "anthropic", "google"):
            address = name
            model = ""
            if "#" in name:
                address, _, model = name.rpartition("#")
            self._url, visible_address = _read_address(address)
            name = f"{visible_address}#{model}"

        allowed = "a provider or an address, and the name of a model"
        require(model, "model", name, allowed)

        self.name = name
        self.model: str = model
        self._key = api_key
        self._timeout = timeout

    async def complete(
        self, messages: Sequence[Message], **options: Unpack[Options]
    ) -> Answer:
        """Answer the chat; omit temperature or seed for models that refuse them.

        Raises ModelUnavailable, ModelTimeout, PromptTooLong, MalformedAnswer,
        ModelError, InvalidInput.
        """
        settings = calls.check_request(messages, options)
        schema = settings.pop("schema")
        settings["max_retries"] = self.retries
        # Without it, the library sends none, but the model's most to Anthropic, whose
        # interface needs one.
        if settings["max_tokens"] is None:
            del settings["max_tokens"]

        start = time.monotonic()
        async with self.library_call("a completion"):
            from pydantic_ai.direct import model_request

            async with self._open() as model:
                profile: Fields = dict(model.profile)
                if any(profile.get(name) for name in _FIXED_TEMPERATURE_PROFILES):
                    del settings["temperature"]

                response = await model_request(
                    model,
                    _library_messages(messages),
                    model_settings=cast("ModelSettings", settings),
                    model_request_parameters=_output_parameters(schema, profile),
                )
        seconds = time.monotonic() - start

        finish, detail = ending_of(response)

        # In US dollars, by the library's price list; 0 for models that are not on the
        # list.
        cost = 0.0
        with suppress(LookupError, ValueError, AssertionError):
            cost = float(response.cost().total_price)

        usage = Usage(
            1,
            response.usage.input_tokens,
            completion_tokens=response.usage.output_tokens,
            cost=cost,
            seconds=seconds,
        )
        answer = Answer(response.text or "", usage, finish, detail=detail)
        return calls.check_answer(self.name, answer)

    async def close(self) -> None:
        """Do nothing: there is no state between calls."""

    @asynccontextmanager
    async def library_call(self, wanted: str) -> AsyncIterator[None]:
        """Limit the body's time, and turn the library's errors into ModelErrors.

        The text of an error can say what was `wanted`, for example "a completion".
        """
        try:
            async with calls.time_limit(self._timeout, self.name):
                yield
        except ImportError as error:
            extra = self._kind if self._kind in ("anthropic", "google") else "models"
            raise errors.ModelUnavailable(
                f"model {self.name!r} needs a library: {errors.install_line(extra)}"
            ) from error
        except (
            RuntimeError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            raise self._model_error(error, wanted) from error

    def provider(self, **options: Any) -> "Provider[Any]":
        """Return the library's provider.

        It is an async context manager that closes its connections.
        """
        if self._url:  # never send the key of OpenAI to another server
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            return OpenAICompatibleProvider(
                "endpoint", base_url=self._url, api_key=self._key, **options
            )

        from pydantic_ai.providers import infer_provider_class

        provider_class: Callable[..., Provider[Any]] = infer_provider_class(self._kind)
        return provider_class(api_key=self._key)

    def _open(self) -> "ProviderModel":
        """Return the library's model, an async context manager."""
        if not self._url:
            from pydantic_ai.models import infer_model

            kind = "openai-chat" if self._kind == "openai" else self._kind
            return infer_model(f"{kind}:{self.model}", lambda _: self.provider())

        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile

        # Other servers than OpenAI's need `max_tokens` and the unchanged schema of the
        # caller.
        profile = OpenAIModelProfile(
            supports_json_schema_output=True,
            openai_chat_supports_max_completion_tokens=False,
            json_schema_transformer=None,
        )
        return OpenAIChatModel(self.model, provider=self.provider(profile=profile))

    def _model_error(self, error: Exception, wanted: str) -> errors.ModelError:
        """Return the error of heedful for an error of the library."""
        model = f"model {self.name!r}"
        reason = redact(str(error))[:500]
        # The names of the error's class and of its bases, the nearest first.
        class_names = [kind.__name__ for kind in type(error).__mro__]

        lacks_key = "UserError" in class_names and "API_KEY" in reason
        if "ModelAuthenticationError" in class_names or lacks_key:
            state = "the key was refused" if self._key else "no key, or a wrong one"
            remedy = "pass api_key"
            if not self._url:
                remedy = f"set {self._kind.upper()}_API_KEY or pass api_key"
            return errors.ModelUnavailable(f"{model}: {state}; {remedy}: {reason}")

        known_errors = (
            _LIBRARY_ERRORS[name] for name in class_names if name in _LIBRARY_ERRORS
        )
        error_class, message = next(known_errors, _MALFORMED_ANSWER_ERROR)
        return error_class(f"{model} {message.format(wanted=wanted)}: {reason}")


def _read_address(address: str) -> tuple[str, str]:
    """Return the URL of a server, and the URL to show, without login and query.

    Raises InvalidInput.
    """
    allowed = "an address as in http://127.0.0.1:8000/v1"
    scheme, _, rest = address.partition("://")
    login, separator, _ = rest.partition("/")[0].rpartition("@")
    rest = rest.removeprefix(f"{login}{separator}")
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        has_place = parts.hostname and (parts.port is None or parts.port)
    except ValueError as error:  # the port is no number
        raise errors.InvalidInput("url", address, allowed) from error
    is_web = scheme in ("http", "https") and len(address.split()) == 1
    require(has_place and is_web, "url", address, allowed)

    visible = parts._replace(query="", fragment="").geturl()
    return f"{scheme}://{quote(login, ':%')}{separator}{rest}", visible


def _output_parameters(
    schema: Fields | None, profile: Fields
) -> "ModelRequestParameters":
    """Return what asks the model for JSON that fits the schema, or for a text."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    if schema is None:
        return ModelRequestParameters()

    mode: Literal["native", "prompted"] = "prompted"
    if profile.get("supports_json_schema_output"):
        mode = "native"
    # None lets the library choose; without a transformer the schema stays unchanged.
    strict = None if profile.get("json_schema_transformer") else False
    output_object = OutputObjectDefinition(dict(schema), name="answer", strict=strict)
    return ModelRequestParameters(output_mode=mode, output_object=output_object)


def _library_messages(messages: Sequence[Message]) -> "list[ModelMessage]":
    """Return the messages as the library's requests and responses."""
    from pydantic_ai import messages as library

    parts = {"system": library.SystemPromptPart, "user": library.UserPromptPart}
    turns: list[ModelMessage] = []
    for message in messages:
        content = calls.replace_surrogates(message.content)
        if message.role == "assistant":
            turns.append(library.ModelResponse([library.TextPart(content)]))
        else:
            turns.append(library.ModelRequest([parts[message.role](content)]))

    return turns
