"""A row for each function of the store that heedful writes with: a call that makes this
write, once it is prepared. Public calls, where one makes it; else the write itself.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any

import heedful
from heedful.episodes.episode import Episode, Event
from heedful.integrations import call_host
from heedful.lessons.lesson_check import Alarm
from heedful.lessons.scope import Scope
from heedful.lessons.telling import LessonCandidate, TellingBudget
from heedful.loop.ladder import Allowance
from heedful.loop.record import Evaluation, Finding
from heedful.memory import (
    accepting,
    dream,
    hardening,
    quarantine,
    transfer,
    trial,
    vectors,
)
from heedful.store import (
    connection,
    editions,
    episode_lessons,
    episodes,
    exposures,
    forgetting,
    keys,
    ladders,
    lessons,
    loop_notes,
    loops,
    reminders,
    retention,
    rule_changes,
    search,
)
from heedful.store.idempotency import IdempotentCall, keep_answer
from heedful.store.records import Head
from heedful.store.store import Store
from heedful.testing import FixedEmbedder

Call = Callable[..., Awaitable[Any]]
WORSE = Evaluation((Finding("unit", "no unit"),))
RULE = "Always write the unit."
ONE_TRY = heedful.Policy((heedful.MaxAttempts(1),), name="one try")


@dataclass(frozen=True)
class World:
    """A scope of its own in a store."""

    store: Store
    scope: Scope

    @property
    def memory(self) -> heedful.Memory:
        return heedful.Memory(self.store, self.scope, holdout=0)

    def writing(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """Return the call that makes this write of the store."""
        return partial(self.store.write, self.scope, work, *args, **kwargs)

    async def remember(self, text: str = "the build fails", **options: Any) -> Any:
        return await self.memory.remember("E", text, **options)

    async def quarantined(self) -> int:
        """Return the id of a lesson that waits in quarantine."""
        remembered = await self.remember(origin="outside", source="a page")
        return int(remembered.entry)

    async def open_loop(self, id: str = "L", **options: Any) -> heedful.ReportedLoop:
        return await heedful.open_loop(
            id, "task", store=self.store, scope=self.scope, **options
        )

    async def stopped_loop(self) -> heedful.ReportedLoop:
        loop = await self.open_loop(policy=ONE_TRY)
        await loop.report("12", evaluation=WORSE)
        return loop

    async def hardened(self) -> int:
        """Return the id of a lesson whose check judges, and has found something."""
        for number, (wrong, right) in enumerate(
            (("high", "P1"), ("Very low", "P3"), ("urgent!", "P0"))
        ):
            await self._run_triage(f"task {number}", wrong, right, severity)
        rows = await self.memory.top()
        id = min(int(row["id"]) for row in rows if row["kind"] == "check")
        await heedful.LessonChecks(self.memory).accept(id, by="ana")
        await self._run_triage("task 4", "medium", "P2", not_empty)
        return id

    async def _run_triage(self, task: str, *answers: Any) -> None:
        *texts, check = answers
        left = list(texts)
        await heedful.run(
            task,
            generate=lambda task, hint: left.pop(0),
            checks=[check],
            memory=self.memory,
            store=self.store,
            memory_key="triage",
        )

    async def waiting_episode(self) -> str:
        await self.store.write(self.scope, episodes.admit, EPISODE, claim=False)
        return EPISODE.digest


EPISODE = episodes.StoredEpisode(
    digest="d1", name="e", session="s1", outcome="failure", record={"events": []}
)
SESSION = Episode(
    (
        Event("tool_call", '{"command": "make"}', tool="Bash", call="1"),
        Event("tool_response", "make: *** no rule", tool="Bash", call="1", code="2"),
        Event("tool_call", '{"command": "make all"}', tool="Bash", call="2"),
        Event("tool_response", "done", tool="Bash", call="2", code="0"),
    ),
    session="s1",
    outcome="failure",
)


def not_empty(answer: str) -> bool:
    return bool(answer)


def severity(answer: str) -> list[Finding]:
    if answer in ("P0", "P1", "P2", "P3"):
        return []
    return [Finding("severity", "no severity", fix="Answer with one of P0 to P3")]


Prepare = Callable[[World], Awaitable[Call]]
ROWS: dict[Callable[..., Any], list[Prepare]] = {}


def writes(function: Callable[..., Any]) -> Callable[[Prepare], Prepare]:
    """Add a row: the decorated function prepares a call that writes `function`."""

    def add(prepare: Prepare) -> Prepare:
        ROWS.setdefault(function, []).append(prepare)
        return prepare

    return add


# Loops


@writes(loops.begin)
async def open_loop(world: World) -> Call:
    return world.open_loop


@writes(loops.brief)
async def open_loop_with_memory(world: World) -> Call:
    await world.remember(example=heedful.Example("task", "12 kg", rejected="12"))
    return partial(heedful.open_loop, "L", "task", memory=world.memory)


@writes(loops.commit)
async def report(world: World) -> Call:
    loop = await world.open_loop()
    return partial(loop.report, "12", evaluation=WORSE, attempt=1)


@writes(loops.commit)
async def cancel(world: World) -> Call:
    from heedful.drive.report import cancel as cancel_loop

    await world.open_loop()
    return partial(cancel_loop, world.store, world.scope, "L", by="ana")


@writes(loops.claim)
@writes(loops.commit)
async def run(world: World) -> Call:
    async def run_loop(id: str = "L") -> Any:
        return await heedful.run(
            "task",
            generate=lambda task, hint: "12 kg",
            checks=[lambda answer: "kg" in answer],
            id=id,
            store=world.store,
            scope=world.scope,
        )

    return run_loop


@writes(loops.claim)
async def pipeline_run(world: World) -> Call:
    pipeline = heedful.Pipeline("p", store=world.store, scope=world.scope)

    @pipeline.stage()
    def weigh(state: dict[str, Any]) -> None:
        state["weight"] = "12 kg"

    async def run_pipeline(id: str = "R") -> Any:
        return await pipeline.run({}, id=id)

    return run_pipeline


@writes(loops.lift)
async def override(world: World) -> Call:
    await world.stopped_loop()
    return partial(
        heedful.override,
        "L",
        "attempts",
        by="ana",
        store=world.store,
        scope=world.scope,
    )


@writes(loops.lift)
async def override_of_run(world: World) -> Call:
    run: heedful.Run[str] = heedful.Run(
        "task",
        generate=lambda task, hint: "12",
        checks=[lambda answer: "kg" in answer],
        policy=ONE_TRY,
        id="L",
        store=world.store,
        scope=world.scope,
    )
    await run.step()
    return partial(run.override, "attempts", "ana")


@writes(loops.beat)
async def beat_of_loop(world: World) -> Call:
    await world.store.write(world.scope, loops.claim, "L", Head(task="task"), "me")
    return world.writing(loops.beat, "L", 1)


@writes(loops.set_policy)
async def set_policy(world: World) -> Call:
    await world.open_loop()
    return world.writing(loops.set_policy, "L", Head(task="task"))


@writes(loops.note)
async def note(world: World) -> Call:
    return world.writing(loops.note, "L", "L/1", {"bias: haste": {"a": 1}})


@writes(loop_notes.add)
async def note_of_person(world: World) -> Call:
    await world.open_loop()
    return world.writing(loop_notes.add, "L", "a note", by="ana")


@writes(ladders.reserve)
async def reserve(world: World) -> Call:
    return world.writing(ladders.reserve, Allowance(name="small", calls=5), 1e9)


@writes(retention.remove_some)
async def remove_loops(world: World) -> Call:
    await world.stopped_loop()
    return partial(retention.remove, world.store, world.scope, ended_for=-5, by="ana")


# Lessons


@writes(exposures.remember)
async def remember(world: World) -> Call:
    await world.remember()
    return world.remember


@writes(exposures.remember)
async def remember_the_first(world: World) -> Call:
    return world.remember


@writes(accepting.store_answer)
async def correct(world: World) -> Call:
    await world.stopped_loop()
    return partial(world.memory.correct, "L", "12 kg", by="ana")


@writes(lessons.pin)
async def pin(world: World) -> Call:
    remembered = await world.remember()
    return partial(world.memory.pin, remembered.id, by="ana")


@writes(lessons.edit)
async def edit(world: World) -> Call:
    remembered = await world.remember()
    return partial(world.memory.edit, remembered.id, RULE, by="ana")


@writes(editions.amend)
async def retire_rule(world: World) -> Call:
    stated = await world.memory.user_rules.state(RULE, by="ana")
    return partial(world.memory.user_rules.retire, stated.id, by="ana")


@writes(retention.prune)
async def prune(world: World) -> Call:
    await world.remember()
    return partial(world.memory.prune, by="ana", keep=0)


@writes(forgetting.clear)
async def clear(world: World) -> Call:
    await world.remember()
    return world.memory.clear


@writes(forgetting.forget)
async def forget_a_lesson(world: World) -> Call:
    remembered = await world.remember()
    return partial(world.memory.forget, lesson=remembered.id, by="ana")


@writes(forgetting.forget)
async def forget_a_person(world: World) -> Call:
    await world.remember(source="user:bob")
    return partial(world.memory.forget, person="bob", by="ana")


@writes(lessons.clear_type)
async def clear_type(world: World) -> Call:
    await world.remember()
    return world.writing(lessons.clear_type, "error", "E")


@writes(exposures.conclude)
async def look(world: World) -> Call:
    await world.remember()
    return world.memory.look


@writes(exposures.count_alarms)
async def count_alarms(world: World) -> Call:
    lesson = await world.hardened()
    return world.writing(exposures.count_alarms, [Alarm(lesson)])


@writes(exposures.restore)
async def restore(world: World) -> Call:
    remembered = await world.remember()
    await world.store.write(world.scope, unfit, remembered.id)
    return partial(world.memory.quarantine.restore, remembered.id, by="ana")


def unfit(db: connection.Db, scope: Scope, id: int) -> None:
    """Keep a lesson from a model, as a proof does."""
    db.update("lesson", {"id": id}, {"unfit_for": '["m"]'})


@writes(search.place)
async def reembed(world: World) -> Call:
    await world.remember()
    memory = heedful.Memory(world.store, world.scope, embedder=FixedEmbedder())
    return partial(vectors.reembed, memory)


@writes(transfer.import_lessons)
async def import_lessons(world: World) -> Call:
    other = heedful.Memory(world.store, replace(world.scope, project="other"))
    await other.remember("E", "the build fails")
    file = BytesIO()
    await other.export(file)

    async def import_them() -> Any:
        file.seek(0)
        return await world.memory.import_(file, origin="user", by="ana", why="ours")

    return import_them


# Decisions of persons


@writes(quarantine.settle)
async def release(world: World) -> Call:
    entry = await world.quarantined()
    return partial(world.memory.quarantine.release, [entry], by="ana")


@writes(quarantine.settle)
async def reject(world: World) -> Call:
    entry = await world.quarantined()
    return partial(world.memory.quarantine.reject, [entry], by="ana")


@writes(quarantine.undo)
async def undo_a_release(world: World) -> Call:
    entry = await world.quarantined()
    await world.memory.quarantine.release([entry], by="ana")
    return partial(world.memory.quarantine.undo, [entry], by="ana")


@writes(quarantine.state_names)
async def state_a_source(world: World) -> Call:
    return partial(world.memory.quarantine.state, "curl", by="ana")


@writes(quarantine.release_stated)
async def release_stated(world: World) -> Call:
    entry = await world.quarantined()
    return world.writing(quarantine.release_stated, [entry], ["a page"])


@writes(forgetting.forget)
async def revoke(world: World) -> Call:
    await world.remember(source="a page")
    return partial(world.memory.quarantine.revoke, "a page", by="ana")


@writes(hardening.settle)
async def accept_a_check(world: World) -> Call:
    lesson = await world.hardened()
    return partial(heedful.LessonChecks(world.memory).accept, lesson, by="ana")


@writes(hardening.settle)
async def reject_a_check(world: World) -> Call:
    lesson = await world.hardened()
    return partial(heedful.LessonChecks(world.memory).reject, lesson, by="ana")


@writes(hardening.report_false_alarm)
async def false_alarm(world: World) -> Call:
    lesson = await world.hardened()
    await world.store.write(world.scope, exposures.count_alarms, [Alarm(lesson)])
    return partial(heedful.LessonChecks(world.memory).false_alarm, lesson, by="ana")


@writes(rule_changes.state)
async def state_a_rule(world: World) -> Call:
    return partial(world.memory.user_rules.state, RULE, by="ana")


@writes(rule_changes.state)
async def hear_rules(world: World) -> Call:
    message = "Never push to main. Always run the tests."
    return partial(world.memory.user_rules.hear, message, source="session:1")


@writes(rule_changes.deny)
async def deny_calls(world: World) -> Call:
    stated = await world.memory.user_rules.state("Never use npm.", by="ana")
    return partial(world.memory.user_rules.deny, stated.id, by="ana")


@writes(call_host._write_telling)
async def tell_rules(world: World) -> Call:
    stated = await world.memory.user_rules.state(RULE, by="ana")
    event = Event("system_event", stated.digest, code="rules told")
    rows = [episodes.event_row(event)]
    return world.writing(call_host._write_telling, "s1", rows, reader="s1")


@writes(dream.store_dream)
async def consolidate(world: World) -> Call:
    await world.remember()
    return partial(heedful.consolidate, world.memory)


@writes(dream.undo)
async def roll_back(world: World) -> Call:
    dreamt = await heedful.consolidate(world.memory)
    return partial(dream.Dreams(world.memory).rollback, dreamt.id, by="ana")


@writes(keys.insert)
async def create_key(world: World) -> Call:
    return partial(keys.create, world.store, world.scope.tenant, "a key")


@writes(keys.revoke)
async def revoke_key(world: World) -> Call:
    key, _ = await keys.create(world.store, world.scope.tenant, "a key")
    return world.writing(keys.revoke, key.id, "ana")


# Runs of agents


@writes(episodes.admit)
async def admit_episode(world: World) -> Call:
    return world.writing(episodes.admit, EPISODE)


@writes(episode_lessons.record_lessons)
async def reflect_on_episode(world: World) -> Call:
    return partial(heedful.reflect, SESSION, memory=world.memory)


@writes(episode_lessons.record_session)
async def learn_session(world: World) -> Call:
    return partial(heedful.learn_session, SESSION, memory=world.memory)


@writes(episodes.take)
async def take_episode(world: World) -> Call:
    digest = await world.waiting_episode()
    return world.writing(episodes.take, 1e12, digest)


@writes(episodes.beat)
async def beat_of_episode(world: World) -> Call:
    return world.writing(episodes.beat, await world.waiting_episode())


@writes(episodes.record_failure)
async def record_failure(world: World) -> Call:
    return world.writing(episodes.record_failure, await world.waiting_episode(), "why")


@writes(call_host._write_record)
async def keep_events(world: World) -> Call:
    return world.writing(
        call_host._write_record,
        "s1",
        [episodes.event_row(SESSION.events[0])],
        reader="s1",
        moment="before call",
        candidates=lambda: [LessonCandidate(name="mark/a", leg="call")],
        budget=TellingBudget(),
        share=0.0,
        root="",
    )


@writes(episodes.forget_session)
async def forget_session(world: World) -> Call:
    await (await keep_events(world))()
    return world.writing(episodes.forget_session, "s1", until=1e12)


@writes(reminders.settle)
async def settle_reminders(world: World) -> Call:
    await (await keep_events(world))()
    return world.writing(reminders.settle, "s1", verdicts={}, at=1e9)


# Trials, and the service


@writes(trial.offer)
async def offer(world: World) -> Call:
    trial = heedful.Trial("mem", world.store, world.scope, holdout=0.0)
    return partial(trial.offer, "L", ["a text"])


@writes(trial.end)
async def end_trial(world: World) -> Call:
    trial = heedful.Trial("mem", world.store, world.scope, holdout=0.0)
    await trial.offer("L", ["a text"])
    return partial(trial.end, "L", True)


@writes(keep_answer)
async def keep_an_answer(world: World) -> Call:
    call = IdempotentCall(
        tenant=world.scope.tenant, caller="k", once="once", digest="digest"
    )
    return world.writing(keep_answer, call, {"status": 200}, 0)


@writes(connection.check_writes)
async def check_writes(world: World) -> Call:
    return world.writing(connection.check_writes)
