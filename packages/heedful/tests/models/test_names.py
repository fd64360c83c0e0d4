"""The names that users write, and what opening one must not cost."""

import pytest

from heedful import open_model
from heedful.errors import InvalidInput, UnknownName
from heedful.models import FORMS
from heedful.models.contract import Model
from heedful.models.embedded import EmbeddedModel
from heedful.models.function import Function
from heedful.models.remote import RemoteModel
from tests.tables import cases


@cases(
    ("name", "kind"),
    {
        "embedded": ("embedded", EmbeddedModel),
        "openai": ("openai:gpt-5", RemoteModel),
        "google": ("google:gemini-2.5-flash", RemoteModel),
        "an address on this machine": ("http://127.0.0.1:8000/v1#qwen", RemoteModel),
        "a function": ("json:dumps", Function),
    },
)
def test_a_name_opens_its_model_and_is_kept(name, kind):
    model = open_model(name)
    assert isinstance(model, kind)
    assert isinstance(model, Model)
    assert model.name == name
    with pytest.raises(InvalidInput, match="timeout is -1; it must be seconds above 0"):
        open_model(name, timeout=-1)


BAD = "|openai:|google|http://127.0.0.1:8000/v1|https://models.example/v1#|:f|json:|a/b:c"


@pytest.mark.parametrize("name", BAD.split("|"))
def test_a_wrong_name_lists_the_forms(name):
    with pytest.raises(UnknownName) as error:
        open_model(name)
    assert error.value.known == FORMS


@pytest.mark.parametrize("url", ["http://[::1", "http://", "http://127.0.0.1:x/v1"])
def test_a_wrong_address_is_refused(url):
    with pytest.raises(InvalidInput, match="url is "):
        open_model(f"{url}#m")


@pytest.mark.parametrize("login", ["bob:pa@ss2word@", "bob:pa#ss2word@", "token2@", ""])
def test_the_name_of_a_model_has_no_credentials(login):
    model = open_model(f"http://{login}host:8000/v1?key=a1b2c3d4#m")
    assert model.name == "http://host:8000/v1#m"
