# Made by scripts/stub.py from the table in __init__.py.
from heedful.checks.claims import ground, grounding
from heedful.checks.claims.evidence import Evidence, Lexicon
from heedful.checks.claims.insights import insights, precision
from heedful.checks.claims.sentence import Claim
from heedful.checks.critique import BIASES, ROLES, Role, calibrate, critic, critics
from heedful.checks.json_schemas import json_schema
from heedful.checks.loading import known, load
from heedful.checks.numbers import finite, predictions, ranges, results, rows
from heedful.checks.program import python_tests
from heedful.checks.text import characters, contains, equals, excludes, not_empty, regex, words
__all__ = ['BIASES', 'Claim', 'Evidence', 'Lexicon', 'ROLES', 'Role', 'calibrate', 'characters', 'contains', 'critic', 'critics', 'equals', 'excludes', 'finite', 'ground', 'grounding', 'insights', 'json_schema', 'known', 'load', 'not_empty', 'precision', 'predictions', 'python_tests', 'ranges', 'regex', 'results', 'rows', 'words']
