"""Models behind an interface on the network: OpenAI, Anthropic, Google, and what speaks OpenAI's.

Every call opens its own connection: no state is held between calls, so any event loop may ask.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from errata.errors import (
    InvalidInput,
    MalformedAnswer,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    PromptTooLong,
)
from errata.models.bounds import (
    MOST_ANSWER_BYTES,
    check_request,
    check_timeout,
    checked,
    within,
)
from errata.protocols import Answer, Message, Usage

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as ProviderModel
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

Provider = Literal["openai", "anthropic", "google", "endpoint"]
CONNECT_SECONDS = 10.0
KEYS: dict[Provider, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
    "endpoint": "",
}
# What the library raises, most particular first; by name, because the kinds grew over releases.
_ERRORS: tuple[tuple[frozenset[str], type[ModelError], str], ...] = (
    (
        frozenset({"ModelTimeoutError", "ModelRequestTimeout"}),
        ModelTimeout,
        "gave no answer in time; give it more (timeout)",
    ),
    (
        frozenset({"ModelContextWindowExceededError"}),
        PromptTooLong,
        "holds less than this prompt; shorten it",
    ),
    (
        frozenset({"ModelNotFoundError"}),
        ModelUnavailable,
        "is not known there; check its name and the address",
    ),
    (
        frozenset({"ModelConnectionError"}),
        ModelUnavailable,
        "cannot be reached; check the address and that the server runs",
    ),
    (
        frozenset({"ModelRateLimitError", "ModelQuotaExceededError", "ModelUnavailableError"}),
        ModelUnavailable,
        "gives no answers for now; try later",
    ),
)
# A body is larger than its text: escapes, token lists. Beyond this it is read no further.
MOST_BODY_BYTES = 4 * MOST_ANSWER_BYTES


class Remote:
    """A model of `provider` called `model`; an `endpoint` is the OpenAI interface at `url`.

    Without `api_key` the provider's own library looks where it always does. `timeout` is in seconds
    for one call, its `retries` (after a refused connection or a busy server) included.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = 120.0,
        retries: int = 2,
    ) -> None:
        check_timeout(timeout)
        if not model:
            raise InvalidInput("model", model, "the name of a model of the provider")
        if retries < 0:
            raise InvalidInput("retries", retries, "an integer of at least 0")
        if (url is None) != (provider != "endpoint"):
            raise InvalidInput("url", url, "given for an endpoint, and only there")
        self._provider, self._model, self._url = provider, model, url
        self._key, self._timeout, self._retries = api_key, timeout, retries

    @property
    def name(self) -> str:
        """`openai:MODEL`, `anthropic:MODEL`, `google:MODEL` or `URL#MODEL`."""
        return f"{self._url}#{self._model}" if self._url else f"{self._provider}:{self._model}"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """Answer the chat. Models that take no temperature or seed are asked without.

        Raises ModelUnavailable, ModelTimeout, PromptTooLong, MalformedAnswer, ModelError,
        InvalidInput.
        """
        check_request(messages, max_tokens, temperature)
        tuning = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        begun = time.monotonic()
        try:
            async with within(self._timeout, self.name), _client(self._timeout) as (http, body):
                response = await self._request(http, body, messages, schema, tuning)
        except ImportError as error:
            extra = "models" if self._provider in ("openai", "endpoint") else self._provider
            what = f"model {self.name!r} needs a library: pip install 'errata[{extra}]'"
            raise ModelUnavailable(what) from error
        return checked(self.name, self._answer(response, time.monotonic() - begun), schema)

    async def close(self) -> None:
        """Nothing is held between calls."""

    async def _request(
        self,
        http: httpx2.AsyncClient,
        body: _Body,
        messages: Sequence[Message],
        schema: Mapping[str, Any] | None,
        tuning: dict[str, Any],
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            model = _OPEN[self._provider](self._model, self._url, self._key, http)
            settings = cast(
                "ModelSettings", _allowed(model, tuning | {"max_retries": self._retries})
            )
            return await model_request(
                model,
                _turns(messages),
                model_settings=settings,
                model_request_parameters=_parameters(model, schema),
            )
        except (AgentRunError, UserError, ValueError, LookupError) as error:
            raise self._typed(error, body) from error

    def _typed(self, error: Exception, body: _Body) -> ModelError:
        """Our error for what the provider's library raised."""
        model, said = f"model {self.name!r}", str(error)[:500]
        if body.cut:
            what = f"{model} answered more than {MOST_BODY_BYTES} bytes; the rest was not read"
            return MalformedAnswer(what, body.began)
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "ModelAuthenticationError" in kinds or ("UserError" in kinds and "API_KEY" in said):
            return ModelUnavailable(f"{self._refused()}: {said}")
        for names, ours, what in _ERRORS:
            if kinds & names:
                return ours(f"{model} {what}: {said}")
        # The bare ModelAPIError is a body that is no JSON, a LookupError one without choices.
        garbage = {"UnexpectedModelBehavior", "ValueError", "LookupError"}
        if kinds & garbage or type(error).__name__ == "ModelAPIError":
            what = f"{model} answered something else than a completion: {said}"
            return MalformedAnswer(what, body.began)
        return ModelError(f"{model} failed: {said}")

    def _refused(self) -> str:
        variable = KEYS[self._provider]
        where = f"set {variable} or pass api_key" if variable else "pass api_key"
        state = "the key was refused" if self._key else "no key, or a wrong one"
        return f"model {self.name!r}: {state}; {where}"

    def _answer(self, response: ModelResponse, seconds: float) -> Answer:
        text = response.text
        if not text:
            why = response.finish_reason or "no reason given"
            hint = "; raise max_tokens" if why == "length" else ""
            raise MalformedAnswer(f"model {self.name!r} answered no text ({why}{hint})")
        usage = Usage(
            calls=1,
            prompt_tokens=response.usage.input_tokens,
            completion_tokens=response.usage.output_tokens,
            seconds=seconds,
        )
        return Answer(text, usage, "length" if response.finish_reason == "length" else "stop")


@dataclass
class _Body:
    """What was read of the last response: how it began, and whether it was cut."""

    began: str = ""
    cut: bool = False


@asynccontextmanager
async def _client(seconds: float | None) -> AsyncIterator[tuple[httpx2.AsyncClient, _Body]]:
    import httpx2

    body = _Body()

    async def bound(response: httpx2.Response) -> None:
        response.stream = _bounded(response.stream, body)

    limits = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(
        timeout=limits, verify=_trust(), event_hooks={"response": [bound]}
    ) as client:
        yield client, body


def _bounded(stream: Any, body: _Body) -> Any:
    """The stream of a response, ended after MOST_BODY_BYTES."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MOST_BODY_BYTES
            body.began, body.cut = "", False
            async for chunk in stream:
                body.began = body.began or chunk[:200].decode("utf-8", "replace")
                yield chunk[:left]
                left -= len(chunk)
                if left < 0:
                    body.cut = True
                    return

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


@cache
def _trust() -> Any:
    """Certificates, loaded once: 15 ms, the most costly part of a client."""
    import httpx2

    return httpx2.create_ssl_context()


def _open_openai(model: str, url: str | None, key: str | None, http: Any) -> ProviderModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(model, provider=OpenAIProvider(api_key=key, http_client=http))


def _open_endpoint(model: str, url: str | None, key: str | None, http: Any) -> ProviderModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # What servers other than OpenAI's understand: `max_tokens`, and the caller's own schema.
    profile = OpenAIModelProfile(
        supports_json_schema_output=True,
        openai_chat_supports_max_completion_tokens=False,
        json_schema_transformer=None,
    )
    provider = OpenAICompatibleProvider(
        "endpoint", base_url=url or "", api_key=key, http_client=http, profile=profile
    )
    return OpenAIChatModel(model, provider=provider)


def _open_anthropic(model: str, url: str | None, key: str | None, http: Any) -> ProviderModel:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel(model, provider=AnthropicProvider(api_key=key, http_client=http))


def _open_google(model: str, url: str | None, key: str | None, http: Any) -> ProviderModel:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(model, provider=GoogleProvider(api_key=key, http_client=http))


_OPEN = {
    "openai": _open_openai,
    "endpoint": _open_endpoint,
    "anthropic": _open_anthropic,
    "google": _open_google,
}


def _allowed(model: ProviderModel, tuning: dict[str, Any]) -> dict[str, Any]:
    """Without the temperature for models that refuse one; the seed is dropped by the library."""
    profile: Mapping[str, Any] = dict(model.profile)
    fixed = profile.get("openai_supports_reasoning") or profile.get(
        "anthropic_disallows_sampling_settings"
    )
    return {k: v for k, v in tuning.items() if not (fixed and k == "temperature")}


def _parameters(model: ProviderModel, schema: Mapping[str, Any] | None) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    if schema is None:
        return ModelRequestParameters()
    profile = dict(model.profile)
    native = profile.get("supports_json_schema_output", False)
    strict = None if profile.get("json_schema_transformer") else False
    wanted = OutputObjectDefinition(json_schema=dict(schema), name="answer", strict=strict)
    return ModelRequestParameters(
        output_mode="native" if native else "prompted", output_object=wanted
    )


def _turns(messages: Sequence[Message]) -> list[ModelMessage]:
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        UserPromptPart,
    )

    turns: list[ModelMessage] = []
    for message in messages:
        content = message.content.encode("utf-8", "replace").decode("utf-8")
        match message.role:
            case "assistant":
                turns.append(ModelResponse(parts=[TextPart(content)]))
            case "system":
                turns.append(ModelRequest(parts=[SystemPromptPart(content)]))
            case "user":
                turns.append(ModelRequest(parts=[UserPromptPart(content)]))
    return turns
