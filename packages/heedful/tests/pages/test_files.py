"""The files of a report: the right names, the whole content, and whole or not at
all.
"""

import json
import time
from dataclasses import replace

import pytest

from heedful.errors import StoreUnavailable
from heedful.pages.run_report import write, write_attempt
from tests.pages.support import example
from tests.store.support import python


def test_a_run_has_a_file_for_each_attempt_and_two_of_its_own(tmp_path):
    report = replace(example(), pipeline="p\ud800", run="a/b c")
    paths = write(report, tmp_path / "new" / "reports")
    attempts = [attempt for stage in report.stages for attempt in stage.attempts]
    names = [attempt.file for attempt in attempts] + ["a_b_c.json", "a_b_c.html"]
    assert [path.name for path in paths] == names
    assert sorted(
        path.name for path in (tmp_path / "new" / "reports").iterdir()
    ) == sorted(names)
    for attempt, path in zip(attempts, paths, strict=False):
        assert json.loads(path.read_text("utf-8")) == attempt.plain()
    assert json.loads(paths[-2].read_text("utf-8")) == report.plain()


def test_a_folder_or_name_that_no_disk_takes_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StoreUnavailable, match=r"file.* cannot be written .*check the folder"
    ):
        write(example(), tmp_path / "file" / "reports")
    attempt = replace(example().stage("load").attempts[0], run="r" * 300)
    with pytest.raises(StoreUnavailable, match="name too long"):
        write_attempt(attempt, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


AGAIN = """
import sys
from heedful.pages import write
from tests.pages.support import *

for n in range(int(sys.argv[2])):
    write(example(), sys.argv[1])
    print(n, flush=True)
"""


@pytest.mark.nightly
def test_killed_while_it_writes_no_file_is_half(tmp_path):
    for pause in (0.0, 0.003, 0.011, 0.02):
        process = python(AGAIN, tmp_path, 10_000)
        assert process.stdout
        process.stdout.readline()
        time.sleep(pause)
        process.kill()
        process.communicate()
        for path in tmp_path.glob("*.json"):
            json.loads(path.read_text("utf-8"))
        assert (tmp_path / "nightly-7.html").read_text("utf-8").endswith("</html>\n")
