# Made by scripts/stub.py from the table in __init__.py.
from heedful import checks as checks, episodes as episodes, errors as errors, models as models, testing as testing
from heedful.checks.evaluate import Context, context
from heedful.client import Client
from heedful.drive.generate import Rung, Writer, targeted
from heedful.drive.options import LoopOptions
from heedful.drive.portal import run_sync, self_correcting
from heedful.drive.report import AttemptReport, ReportedLoop, learn, open_loop, override
from heedful.drive.result import Result
from heedful.drive.run_loop import Run, run
from heedful.episodes.episode import Episode, Event, Fault
from heedful.episodes.signals import repeated_step, signals
from heedful.errors import HeedfulError, NotPassed
from heedful.lessons.lesson import Example, Lesson
from heedful.lessons.patterns import Templates
from heedful.lessons.scope import Scope
from heedful.lessons.signature import signature
from heedful.loop import policies as policies
from heedful.loop.decide import Again, Done, Policy, decide, reasoning
from heedful.loop.explain import explain
from heedful.loop.policies import policy
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Improvement, Loop, Usage
from heedful.loop.replay import RecordedLoop, compare, replay
from heedful.loop.runs import Report
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, NothingMet, Plateau, Repeat, StopRule
from heedful.memory.appraisal import appraise
from heedful.memory.dream import consolidate
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from heedful.memory.reflect import reflect
from heedful.memory.sessions import learn_session
from heedful.memory.trial import Trial
from heedful.models import open_model
from heedful.models.contract import Answer, Embedder, Message, Model
from heedful.pipeline import Guardrails, Pipeline
from heedful.store import open_store
from heedful.store.store import Store
__all__ = ['Again', 'All', 'Answer', 'Attempt', 'AttemptReport', 'Budget', 'Candidate', 'Client', 'Context', 'Done', 'Echo', 'Embedder', 'Episode', 'Evaluation', 'Event', 'Example', 'Fatigue', 'Fault', 'Finding', 'Goal', 'Guardrails', 'HeedfulError', 'Improvement', 'Lesson', 'LessonChecks', 'Loop', 'LoopOptions', 'MaxAttempts', 'Memory', 'Message', 'Model', 'NotPassed', 'NothingMet', 'Pipeline', 'Plateau', 'Policy', 'RecordedLoop', 'Repeat', 'Report', 'ReportedLoop', 'Result', 'Run', 'Rung', 'Scope', 'StopRule', 'Store', 'Templates', 'Trial', 'Usage', 'Writer', 'appraise', 'compare', 'consolidate', 'context', 'decide', 'explain', 'learn', 'learn_session', 'open_loop', 'open_model', 'open_store', 'override', 'policy', 'reasoning', 'reflect', 'repeated_step', 'replay', 'run', 'run_sync', 'self_correcting', 'signals', 'signature', 'targeted']
__version__: str
