"""Notebooks: the example runs as shown, and cells keep their memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook" / "triage.ipynb"


def execute(notebook: Any, folder: Path) -> Any:
    """Run all cells of a notebook in a kernel of their own."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    return notebook


def texts_of(notebook: Any) -> list[str]:
    """Return what each cell of code shows, as text."""
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            outputs = [output.get("data", output) for output in cell.outputs]
            parts = [output.get("text/plain", output.get("text")) for output in outputs]
            texts.append("\n".join(parts))
    return texts


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotebookClient]:
    """A notebook whose kernel runs the cells of all tests."""
    folder = tmp_path_factory.mktemp("notebook")
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        nbformat.v4.new_notebook(), timeout=120, resources=resources
    )
    with client.setup_kernel():
        yield client


@pytest.fixture
def run_cells(client: NotebookClient) -> Callable[..., list[str]]:
    """Return a function that runs cells of code and returns what each of them shows."""

    def run(*sources: str) -> list[str]:
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        client.nb.cells = cells
        for number, cell in enumerate(cells):
            client.execute_cell(cell, number)
        return texts_of(client.nb)

    return run


def without_ids(texts: list[str]) -> list[str]:
    """Return texts without the ids of loops."""
    return [text.partition("\nloop ")[0] for text in texts]


def test_the_notebook_of_the_examples_shows_what_a_run_of_it_shows(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    texts = without_ids(texts_of(notebook))
    executed = execute(notebook, tmp_path)
    assert without_ids(texts_of(executed)) == texts
    assert "Passed at the first attempt." in texts[3]
    results = [cell for cell in executed.cells if cell.get("outputs")]
    assert "heedful-cell" in results[0].outputs[0].data["text/html"]


SETUP = """
import heedful
check = lambda answer: [] if answer.startswith("P") else ["use P0 to P3"]
memory = heedful.Memory(":memory:", holdout=0)
"""


def test_an_interrupt_of_a_cell_ends_the_loop_and_the_next_cell_runs(run_cells):
    outputs = run_cells(
        SETUP,
        """
import asyncio, os, signal

async def generate(task, hint):
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

try:
    heedful.run_sync(heedful.run("t", generate=generate, store=None))
except KeyboardInterrupt:
    print("interrupted")
""",
        "heedful.run_sync(asyncio.sleep(0, 7))",
    )
    assert outputs[1].strip() == "interrupted"
    assert outputs[2] == "7"
