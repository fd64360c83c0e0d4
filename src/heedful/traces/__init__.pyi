# Made by scripts/stub.py from the table in __init__.py.
from heedful.traces.episode import Limits
from heedful.traces.messages import write
from heedful.traces.reading import FORMATS, read
__all__ = ['FORMATS', 'Limits', 'read', 'write']
