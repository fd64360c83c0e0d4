"""The style sheet has rules for what the pages show, and for nothing else."""

import re
from pathlib import Path

from heedful import pages
from heedful_server import web

PAGES = Path(pages.__file__).parent
WEB = Path(web.__file__).parent
STYLE = PAGES / "templates" / "ui.css"
TEMPLATES = [
    *(WEB / "templates" / "ui").glob("*.j2"),
    *(PAGES / "templates").glob("*.html.j2"),
]
SOURCES = [*TEMPLATES, *WEB.glob("*.py"), *PAGES.glob("*.py")]
# The attribute of a tag, which may have expressions with quotes in it.
CLASS_ATTRIBUTE = re.compile(
    r'class="((?:\{\{.*?\}\}|\{%.*?%\}|[^"{])*)"', flags=re.DOTALL
)
WORD = re.compile(r"[a-zA-Z][\w-]*")
# States and origins come from records, and the script marks the page.
FROM_RECORDS = {"failure", "halted", "hurts", "js", "outside", "unsure", "whisker"}


def style() -> str:
    """Return the style sheet without its comments."""
    return re.sub(r"/\*.*?\*/", "", STYLE.read_text(), flags=re.DOTALL)


def classes_of_style() -> set[str]:
    selectors = re.findall(r"([^{}]+)\{", style())
    return {
        name
        for selector in selectors
        if not selector.strip().startswith("@")
        for name in re.findall(r"\.([a-zA-Z][\w-]*)", selector)
    }


def test_every_class_of_the_style_stands_on_a_page():
    texts = "\n".join(path.read_text() for path in SOURCES)
    classes = {
        word
        for attribute in CLASS_ATTRIBUTE.findall(texts)
        for word in WORD.findall(attribute)
    }
    quoted = set(re.findall(r"\"([\w-]+)\"", texts))
    assert classes_of_style() - classes - quoted - FROM_RECORDS == set()


def test_every_class_of_a_tag_has_a_rule():
    texts = "\n".join(path.read_text() for path in TEMPLATES)
    classes = {
        word
        for attribute in re.findall(r'class="([^"{}]*)"', texts)
        for word in attribute.split()
    }
    # The page of a cell in a notebook has its own style.
    assert classes - classes_of_style() == {"heedful-cell"}
