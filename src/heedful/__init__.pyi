# Made by scripts/stub.py from the table in __init__.py.
from heedful import checks as checks, episodes as episodes, errors as errors, models as models, testing as testing
from heedful.checks.evaluate import Context, context
from heedful.drive.drive import Run, run
from heedful.drive.generate import Rung, Writer, targeted
from heedful.drive.portal import run_sync, self_correcting
from heedful.drive.report import AttemptReport, ReportedLoop, learn, open_loop, override
from heedful.drive.result import Result
from heedful.episodes.episode import Episode, Event, Fault
from heedful.episodes.signals import Signal, repeated_step, signals
from heedful.errors import HeedfulError, NotPassed
from heedful.lessons.action import Action
from heedful.lessons.before import ActionHistory, KnownFailure
from heedful.lessons.briefing import Briefing
from heedful.lessons.consolidate import Proposal
from heedful.lessons.holdout import Exposure
from heedful.lessons.lesson import Example, Filter, Lesson, Match, Outcome, Signature
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.links import Link, LinkedLesson, Related, RelatedLesson
from heedful.lessons.mistake import Mistake
from heedful.lessons.patterns import Merge, Seen, Templates
from heedful.lessons.proof import Comparison, Effect, Proof, TrialProof
from heedful.lessons.quarantine import Provenance, QuarantinedLesson, RevocationResult
from heedful.lessons.scope import Remembered, Scope
from heedful.lessons.signature import signature
from heedful.lessons.user_rules import StatedRule
from heedful.loop import policies as policies
from heedful.loop.decide import Again, Decision, Done, Policy, Reasoning, Standing, Trigger, decide, reasoning
from heedful.loop.explain import Change, Explanation, explain
from heedful.loop.policies import policy
from heedful.loop.reach import Reach, reach
from heedful.loop.reasons import Stop
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Improvement, Loop, Override, Usage
from heedful.loop.replay import Figures, RecordedLoop, ReplayResult, compare, replay
from heedful.loop.runs import CheckResult, Report, StageAttempt, StageReport
from heedful.loop.stop import All, Budget, Echo, Fatigue, MaxAttempts, NothingMet, Plateau, Repeat, StopRule
from heedful.memory.appraisal import appraise
from heedful.memory.citations import Claim
from heedful.memory.draft import Draft
from heedful.memory.dream import Dream, Dreams, consolidate
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from heedful.memory.quarantine import Quarantine
from heedful.memory.reflect import Reflected, reflect, reflect_waiting
from heedful.memory.sessions import Learned, learn_session
from heedful.memory.transfer import Exported, Imported
from heedful.memory.trial import Trial
from heedful.memory.user_rules import UserRules
from heedful.memory.vectors import Spaces
from heedful.models import open_model
from heedful.models.contract import Answer, Embedder, Message, Model
from heedful.pipeline import Guardrails, Pipeline
from heedful.service.client import Client
from heedful.store import open_store
from heedful.store.store import Store
__all__ = ['Action', 'ActionHistory', 'Again', 'All', 'Answer', 'Attempt', 'AttemptReport', 'Briefing', 'Budget', 'Candidate', 'Change', 'CheckResult', 'Claim', 'Client', 'Comparison', 'Context', 'Decision', 'Done', 'Draft', 'Dream', 'Dreams', 'Echo', 'Effect', 'Embedder', 'Episode', 'Evaluation', 'Event', 'Example', 'Explanation', 'Exported', 'Exposure', 'Fatigue', 'Fault', 'Figures', 'Filter', 'Finding', 'Goal', 'Guardrails', 'HeedfulError', 'Imported', 'Improvement', 'KnownFailure', 'Learned', 'Lesson', 'LessonCheck', 'LessonChecks', 'Link', 'LinkedLesson', 'Loop', 'Match', 'MaxAttempts', 'Memory', 'Merge', 'Message', 'Mistake', 'Model', 'NotPassed', 'NothingMet', 'Outcome', 'Override', 'Pipeline', 'Plateau', 'Policy', 'Proof', 'Proposal', 'Provenance', 'Quarantine', 'QuarantinedLesson', 'Reach', 'Reasoning', 'RecordedLoop', 'Reflected', 'Related', 'RelatedLesson', 'Remembered', 'Repeat', 'ReplayResult', 'Report', 'ReportedLoop', 'Result', 'RevocationResult', 'Run', 'Rung', 'Scope', 'Seen', 'Signal', 'Signature', 'Spaces', 'StageAttempt', 'StageReport', 'Standing', 'StatedRule', 'Stop', 'StopRule', 'Store', 'Templates', 'Trial', 'TrialProof', 'Trigger', 'Usage', 'UserRules', 'Writer', 'appraise', 'compare', 'consolidate', 'context', 'decide', 'explain', 'learn', 'learn_session', 'open_loop', 'open_model', 'open_store', 'override', 'policy', 'reach', 'reasoning', 'reflect', 'reflect_waiting', 'repeated_step', 'replay', 'run', 'run_sync', 'self_correcting', 'signals', 'signature', 'targeted']
__version__: str
