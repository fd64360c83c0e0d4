# Made by scripts/stub.py from the table in __init__.py.
from heedful.checks.claims import Claim as Claim
from heedful.checks.claims import Evidence as Evidence
from heedful.checks.claims import Lexicon as Lexicon
from heedful.checks.claims import ground as ground
from heedful.checks.claims import grounding as grounding
from heedful.checks.claims.insights import insights as insights
from heedful.checks.claims.insights import precision as precision
from heedful.checks.critique import BIASES as BIASES
from heedful.checks.critique import ROLES as ROLES
from heedful.checks.critique import Role as Role
from heedful.checks.critique import critic as critic
from heedful.checks.critique import critics as critics
from heedful.checks.loading import known as known
from heedful.checks.loading import load as load
from heedful.checks.numbers import finite as finite
from heedful.checks.numbers import predictions as predictions
from heedful.checks.numbers import ranges as ranges
from heedful.checks.numbers import results as results
from heedful.checks.numbers import rows as rows
from heedful.checks.program import python_tests as python_tests
from heedful.checks.schema import json_schema as json_schema
from heedful.checks.text import characters as characters
from heedful.checks.text import contains as contains
from heedful.checks.text import equals as equals
from heedful.checks.text import excludes as excludes
from heedful.checks.text import not_empty as not_empty
from heedful.checks.text import regex as regex
from heedful.checks.text import words as words

__all__: list[str]
