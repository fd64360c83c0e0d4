"""What requests write gets its vectors from a job, after the answer."""

from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.store import search
from heedful.testing import FixedEmbedder
from heedful_server.jobs import LocalQueue, Tools
from tests.service.jobs import Heard
from tests.service.support import PROJECT, TENANT, served

SCOPE = Scope(TENANT, PROJECT)
LESSON = {
    "error_type": "E",
    "text": "the scale has no unit",
    "lesson": "Write the unit.",
}
TASK = {"task": "weigh the flour and write the unit"}
WRONG = {
    "output": "3",
    "evaluation": {"findings": [{"check": "unit", "message": "no unit"}]},
}
RIGHT = {"output": "3 kg", "evaluation": {"findings": []}}


class Failing(FixedEmbedder):
    async def embed(self, texts):
        raise errors.ModelUnavailable("the embedder is away")


def test_a_kill_between_the_commit_and_the_embedding_loses_no_vector(tmp_path):
    with served(
        tmp_path, embedder=Failing()
    ) as api:  # its base queue runs nothing, as if killed
        assert api.post("/v1/reflections", json=LESSON).status_code == 201
        for path, body in (("", TASK), ("/attempts/1", WRONG), ("/attempts/2", RIGHT)):
            assert api.put(f"/v1/loops/l{path}", json=body).status_code < 300
        assert api.run(api.setup.store.read(SCOPE, search.spaces)) == {"": 2}
        heard = Heard()

        async def work(tools: Tools) -> None:  # what a new process does at its start
            async with LocalQueue(tools, listener=heard) as queue:
                await queue.defer("embed", SCOPE)
                await queue.drain()

        api.run(work(Tools(store=api.setup.store, embedder=Failing())))
        assert "again in 2 s: ModelUnavailable: the embedder is away" in heard.words
    with served(tmp_path, embedder=FixedEmbedder()) as api:
        words = {"task": "the unit of the scale", "form": "found"}
        assert api.post("/v1/recall", json=words).json()[
            "items"
        ]  # found by words meanwhile
        api.run(work(Tools(store=api.setup.store, embedder=FixedEmbedder())))
        assert api.run(api.setup.store.read(SCOPE, search.spaces)) == {"fixed/64": 2}
