// Made by scripts/types.ts from docs/openapi.json, whose types have the SHA-256
// 26e486c28e64f049bdd0767d99a440787c172d699b21b2371913df39909996fb.

export interface paths {
    "/v1/loops/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Begin
         * @description Begin a loop, or return it if it exists; 409 if its task, context, goals, policy
         *     or rungs differ.
         *
         *     If the body leaves out the goals or the policy, they are not compared.
         */
        put: operations["loops_begin"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/loops/{id}/attempts/{n}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Attempt
         * @description Report an attempt and return whether to make another; a repeated report changes
         *     nothing.
         *
         *     409 if a different report of the attempt exists, if the number skips an attempt, or
         *     if the loop has ended; 413 if the loop would have more than 8 MiB. The lessons of a
         *     loop that a key from outside judged wait in quarantine, unless a person stated the
         *     key; `release` is the command that releases them.
         */
        put: operations["loops_attempt"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/recall": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Recall
         * @description Recall examples and lessons for a task; with a `loop`, record exposures (needs
         *     `write`).
         */
        post: operations["recall_recall"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/before": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Before
         * @description Return how an action failed before and what fixed it; nothing if it has worked
         *     since.
         */
        post: operations["reflections_before"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/seen": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Seen
         * @description Return how often an error was seen, its lessons, and whether other errors are
         *     `grouped` with it.
         *
         *     Agents are told the lessons with the ids in `told`. The `entry` of a lesson is the
         *     id of its text in quarantine, or 0. If agents are told none, `silence` says why. If
         *     the text has several lines, `lines` are the known errors among them. `release` is
         *     the command that releases the lessons that wait in quarantine.
         */
        post: operations["reflections_seen"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * ActionQuestion
         * @description An action to look up before it runs: `arguments` are data, or the text of a
         *     command.
         */
        ActionQuestion: {
            /** Tenant */
            tenant?: string | null;
            /**
             * Tool
             * @default
             */
            tool: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            } | string;
        };
        /**
         * Cause
         * @description A rule that loops with one memory key broke; later loops are shown its lesson.
         *
         *     `rule` identifies the rule within the key, `checks` name the checks that may have
         *     found the mistake, and `severity` is the highest of its findings. `check_id`
         *     identifies the check that found it last, in all functions that this check guards.
         *     `fix` is 1 if a check said what to do. `loops` counts the loops that broke the rule,
         *     and `mended` those that put it right. `quiet` counts the loops that were
         *     shown the rule and have kept it since it was last broken; once it is
         *     `MIN_UNBROKEN_CASES`, it counts all loops of the key. It `varies` if the fix differs
         *     from task to task.
         */
        Cause: {
            /** Memory Key */
            memory_key: string;
            /** Rule */
            rule: string;
            /**
             * Checks
             * @default []
             */
            checks: string[];
            /**
             * Check Id
             * @default
             */
            check_id: string;
            /**
             * Severity
             * @default 0.5
             */
            severity: number;
            /**
             * Fix
             * @default 0
             */
            fix: number;
            /**
             * Loops
             * @default 1
             */
            loops: number;
            /**
             * Mended
             * @default 0
             */
            mended: number;
            /**
             * Quiet
             * @default 0
             */
            quiet: number;
            /**
             * Varies
             * @default false
             */
            varies: boolean;
        };
        /**
         * Example
         * @description A task, its rejected output, what was wrong with that, and the accepted output.
         *
         *     `rejected` and `wrong` are empty if the first output was accepted. `before` and
         *     `after` are the scores of the two outputs. `evidence` and `fix` are those of the
         *     finding. `rule` is the finding without particulars of the task: the check states it
         *     (`stated`), or blanks replace the particulars. `context` is text around the task.
         *     `model` is the model that wrote the rejected output, or else the accepted one; "" if
         *     it is unknown. `rung` is the rung that wrote the accepted output, or else the
         *     rejected one.
         */
        Example: {
            /** Task */
            task: string;
            /** Accepted */
            accepted: string;
            /**
             * Rejected
             * @default
             */
            rejected: string;
            /**
             * Wrong
             * @default
             */
            wrong: string;
            /** Before */
            before?: {
                [key: string]: number;
            };
            /** After */
            after?: {
                [key: string]: number;
            };
            /**
             * Evidence
             * @default
             */
            evidence: string;
            /**
             * Context
             * @default
             */
            context: string;
            /**
             * Fix
             * @default
             */
            fix: string;
            /**
             * Rule
             * @default
             */
            rule: string;
            /**
             * Stated
             * @default false
             */
            stated: boolean;
            /**
             * Model
             * @default
             */
            model: string;
            /**
             * Rung
             * @default 1
             */
            rung: number;
        };
        /**
         * KnownFailure
         * @description A failure of earlier calls with the same path, name or command.
         *
         *     `kind`, `name`, `tool` and `digest` describe the path, name or command; `name` is ""
         *     for a whole call. The calls failed in `runs` runs, last at the time `failed`, in
         *     seconds since 1970. `error` is the last error, `words` is what a person or a model
         *     said about it, and `fix` is what fixed it; each is "" if unknown or held back.
         *     `lesson` is the id of the lesson about it, 0 if there is none. `text` says all this
         *     in words.
         */
        KnownFailure: {
            /**
             * Kind
             * @enum {string}
             */
            kind: "contract" | "path" | "name" | "call" | "command";
            /**
             * Name
             * @default
             */
            name: string;
            /**
             * Tool
             * @default
             */
            tool: string;
            /**
             * Digest
             * @default
             */
            digest: string;
            /**
             * Error
             * @default
             */
            error: string;
            /**
             * Words
             * @default
             */
            words: string;
            /**
             * Fix
             * @default
             */
            fix: string;
            /**
             * Runs
             * @default 1
             */
            runs: number;
            /**
             * Failed
             * @default 0
             */
            failed: number;
            /**
             * Lesson
             * @default 0
             */
            lesson: number;
            /**
             * Text
             * @default
             */
            text: string;
        };
        /**
         * LessonCheck
         * @description A check that a lesson became.
         *
         *     `lesson` is the id of the lesson, `text` its words. `error_type` is the check or the
         *     tool that found its mistake, and `taught_by` are the names of the loop's checks that
         *     can find it again. `kind` and `rule` say what is checked, and `about` says it in
         *     words. The check judges loops of its `memory_key`; a "call" judges the calls of an
         *     agent. It was executed on outputs: `failed` counts the rejected outputs of the
         *     lesson, `passed` its accepted outputs, and `harmless` the accepted outputs of other
         *     lessons.
         *
         *     Only a check in the state "accepted" judges. `by` accepted or rejected it at the
         *     time `decided`, and said `why`. Since then it has found something `hits` times, last
         *     at the time `last_hit`; `false_alarms` counts the wrong findings. Times are in
         *     seconds since 1970. The lesson has the trust `trust` and the state `lesson_state`;
         *     if it is from outside, `released_by` released it, "" if nobody did.
         */
        LessonCheck: {
            /** Lesson */
            lesson: number;
            /**
             * Kind
             * @enum {string}
             */
            kind: "object" | "form" | "bound" | "word" | "call";
            /** Rule */
            rule: {
                [key: string]: unknown;
            };
            /** About */
            about: string;
            /**
             * Memory Key
             * @default
             */
            memory_key: string;
            /**
             * State
             * @default proposed
             * @enum {string}
             */
            state: "proposed" | "accepted" | "rejected" | "retired";
            /**
             * Failed
             * @default 0
             */
            failed: number;
            /**
             * Passed
             * @default 0
             */
            passed: number;
            /**
             * Harmless
             * @default 0
             */
            harmless: number;
            /**
             * Hits
             * @default 0
             */
            hits: number;
            /**
             * False Alarms
             * @default 0
             */
            false_alarms: number;
            /**
             * Last Hit
             * @default 0
             */
            last_hit: number;
            /**
             * Decided
             * @default 0
             */
            decided: number;
            /**
             * By
             * @default
             */
            by: string;
            /**
             * Why
             * @default
             */
            why: string;
            /**
             * Text
             * @default
             */
            text: string;
            /**
             * Error Type
             * @default
             */
            error_type: string;
            /**
             * Taught By
             * @default []
             */
            taught_by: string[];
            /**
             * Trust
             * @default local
             * @enum {string}
             */
            trust: "user" | "local" | "outside";
            /**
             * Released By
             * @default
             */
            released_by: string;
            /**
             * Lesson State
             * @default unverified
             * @enum {string}
             */
            lesson_state: "unverified" | "verified" | "quarantined" | "retired" | "superseded";
        };
        /**
         * Message
         * @description One turn of a chat.
         *
         *     `source` names the origin of the text and is not sent to the model.
         */
        Message: {
            /**
             * Role
             * @enum {string}
             */
            role: "system" | "user" | "assistant";
            /** Content */
            content: string;
            /**
             * Source
             * @default
             */
            source: string;
        };
        /**
         * NamedCheck
         * @description The name of a check, with the arguments of the check as further fields.
         */
        NamedCheck: {
            /** Name */
            name: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * NewAttempt
         * @description A report of an attempt, with its `output` or the `digest` of its output.
         *
         *     The attempt is judged by an `evaluation`, by `checks` that the service runs on the
         *     output, or both.
         */
        NewAttempt: {
            /** Tenant */
            tenant?: string | null;
            /** Output */
            output?: unknown;
            /**
             * Digest
             * @default
             */
            digest: string;
            /** Evaluation */
            evaluation?: {
                /**
                 * Findings
                 * @default []
                 */
                findings: {
                    /** Check */
                    check: string;
                    /** Message */
                    message: string;
                    /**
                     * Fix
                     * @default
                     */
                    fix: string;
                    /**
                     * Level
                     * @default error
                     * @enum {string}
                     */
                    level: "error" | "warning" | "note";
                    /**
                     * Severity
                     * @default 0.5
                     */
                    severity: number;
                    /**
                     * Key
                     * @default
                     */
                    key: string;
                    /**
                     * Persistent
                     * @default false
                     */
                    persistent: boolean;
                    /**
                     * Evidence
                     * @default
                     */
                    evidence: string;
                    /** Span */
                    span?: [
                        number,
                        number
                    ] | null;
                    /**
                     * Rule
                     * @default
                     */
                    rule: string;
                    /**
                     * Raised
                     * @default
                     */
                    raised: string;
                    /** Off By */
                    off_by?: number | null;
                    /**
                     * More
                     * @default 0
                     */
                    more: number;
                    /**
                     * Check Id
                     * @default
                     */
                    check_id: string;
                }[];
                /** Scores */
                scores?: {
                    [key: string]: number;
                };
                /**
                 * Usage
                 * @description The cost of some work; every field is at least 0, and `+` adds two usages.
                 *
                 *     `seconds` is wall time, `cost` is in the provider's currency.
                 * @default {
                 *       "calls": 0,
                 *       "prompt_tokens": 0,
                 *       "completion_tokens": 0,
                 *       "cost": 0,
                 *       "seconds": 0
                 *     }
                 */
                usage: {
                    /**
                     * Calls
                     * @default 0
                     */
                    calls: number;
                    /**
                     * Prompt Tokens
                     * @default 0
                     */
                    prompt_tokens: number;
                    /**
                     * Completion Tokens
                     * @default 0
                     */
                    completion_tokens: number;
                    /**
                     * Cost
                     * @default 0
                     */
                    cost: number;
                    /**
                     * Seconds
                     * @default 0
                     */
                    seconds: number;
                };
                /**
                 * Preference
                 * @default 0
                 */
                preference: number;
                /** Met */
                met?: number | null;
            } | null;
            /**
             * Checks
             * @default []
             */
            checks: components["schemas"]["NamedCheck"][];
            /**
             * Usage
             * @description The cost of some work; every field is at least 0, and `+` adds two usages.
             *
             *     `seconds` is wall time, `cost` is in the provider's currency.
             * @default {
             *       "calls": 0,
             *       "prompt_tokens": 0,
             *       "completion_tokens": 0,
             *       "cost": 0,
             *       "seconds": 0
             *     }
             */
            usage: {
                /**
                 * Calls
                 * @default 0
                 */
                calls: number;
                /**
                 * Prompt Tokens
                 * @default 0
                 */
                prompt_tokens: number;
                /**
                 * Completion Tokens
                 * @default 0
                 */
                completion_tokens: number;
                /**
                 * Cost
                 * @default 0
                 */
                cost: number;
                /**
                 * Seconds
                 * @default 0
                 */
                seconds: number;
            };
            /**
             * Model
             * @description The model, if known.
             * @default
             */
            model: string;
        };
        /**
         * NewLoop
         * @description A loop to begin. The caller makes the attempts; checks and critics see `context`.
         *
         *     Loops with the same `memory_key` share the rules that they broke, even if their
         *     tasks differ. A key may be the name of the function that makes the attempts. `model`
         *     makes the attempts, unless a report names another model. `rungs` names several
         *     models, cheapest first. Then `rung` in a verdict, counted from 1, says which model
         *     makes the next attempt.
         *
         *     `policy` is a text such as `default, attempts.limit=6`, or an object. By default,
         *     the policy of the service applies. `goals` replace those of the policy; without any
         *     (`[]`), the loop passes if nothing is wrong.
         */
        NewLoop: {
            /** Tenant */
            tenant?: string | null;
            /** Task */
            task: unknown;
            /** Context */
            context?: unknown;
            /** Goals */
            goals?: (string | {
                [key: string]: unknown;
            })[] | null;
            /** Policy */
            policy?: string | {
                [key: string]: unknown;
            } | null;
            /**
             * Memory Key
             * @default
             */
            memory_key: string;
            /**
             * Model
             * @description The model, if known.
             * @default
             */
            model: string;
            /**
             * Rungs
             * @default []
             */
            rungs: string[];
        };
        /** @description An error as in RFC 9457. `code` is stable; further members depend on `code`. */
        Problem: {
            type: string;
            title: string;
            status: number;
            code: string;
            detail: string;
            errors?: {
                in?: string;
                pointer?: string;
                detail?: string;
            }[];
        };
        /**
         * Question
         * @description An error to look up: a message, or the whole output of a command.
         *
         *     `error_type` is the type of the error, the tool that failed, or "".
         */
        Question: {
            /** Tenant */
            tenant?: string | null;
            /**
             * Error Type
             * @default
             */
            error_type: string;
            /** Text */
            text: string;
        };
        /**
         * RecallAnswer
         * @description Items that fit a task, best first. Put `messages` or `text` into a prompt
         *     unchanged.
         *
         *     If nothing can be put into a prompt, `silence` says why the nearest lesson is
         *     missing. For a loop, `briefing` says what memory showed, withheld or lacked, and
         *     why, and `checks` are the checks of lessons that judge its attempts.
         */
        RecallAnswer: {
            /** Items */
            items: {
                /** Id */
                id: number;
                /** Reflection */
                reflection: number;
                example: components["schemas"]["Example"];
                /** Kind */
                kind: string;
                /**
                 * State
                 * @enum {string}
                 */
                state: "unverified" | "verified" | "quarantined" | "retired" | "superseded";
                /** Seen */
                seen: number;
                /** Importance */
                importance: number;
                /** At */
                at: number;
                /**
                 * Last Seen
                 * @default 0
                 */
                last_seen: number;
                /** Cosine */
                cosine?: number | null;
                /** Keyword */
                keyword?: number | null;
                /**
                 * Coverage
                 * @default 0
                 */
                coverage: number;
                /**
                 * Overlap
                 * @default 0
                 */
                overlap: number;
                /**
                 * Error Type
                 * @default
                 */
                error_type: string;
                /**
                 * Lesson
                 * @default
                 */
                lesson: string;
                /**
                 * Tags
                 * @default []
                 */
                tags: string[];
                /**
                 * Signature
                 * @default
                 */
                signature: string;
                /**
                 * Useful
                 * @default 1
                 */
                useful: number;
                /**
                 * Trust
                 * @default user
                 * @enum {string}
                 */
                trust: "user" | "local" | "outside";
                /**
                 * Released By
                 * @default
                 */
                released_by: string;
                /**
                 * Released At
                 * @default 0
                 */
                released_at: number;
                /**
                 * Evidence
                 * @default said
                 * @enum {string}
                 */
                evidence: "nothing failed" | "once" | "failed run" | "put right" | "said";
                /**
                 * Is Correction
                 * @default false
                 */
                is_correction: boolean;
                /**
                 * Has Ended
                 * @default false
                 */
                has_ended: boolean;
                cause?: components["schemas"]["Cause"] | null;
                worked?: components["schemas"]["Example"] | null;
                /**
                 * Own
                 * @default false
                 */
                own: boolean;
                /**
                 * Rule Keys
                 * @default []
                 */
                rule_keys: string[];
                /**
                 * Memory Key
                 * @default
                 */
                memory_key: string;
                /**
                 * Unfit For
                 * @default []
                 */
                unfit_for: string[];
                /** Verified */
                verified: boolean;
                /** Relevance */
                relevance: number;
            }[];
            /** Messages */
            messages: components["schemas"]["Message"][];
            /** Text */
            text: string;
            /** Silence */
            silence: string;
            /** Exposure */
            exposure: {
                [key: string]: unknown;
            } | null;
            /** Briefing */
            briefing: {
                [key: string]: unknown;
            } | null;
            /**
             * Checks
             * @default []
             */
            checks: components["schemas"]["LessonCheck"][];
        };
        /**
         * RecallRequest
         * @description A task to recall examples and lessons for; with a `loop`, this records their
         *     exposures.
         *
         *     `limit`, `budget`, `tags` and `match` are refused with a `loop`. `form` is
         *     `messages` (examples as chat turns), `text` (examples and lessons as one text), or
         *     `found` (only `items`).
         *
         *     The other fields are those of a `loop` that another program decides: its memory key
         *     and model, the names and the `check_ids` of its checks, and what to `tell` it. If it
         *     does not begin now (`begins`), it is shown only what it was shown before. Unless it
         *     `withholds`, no lesson is held back to measure its effect.
         */
        RecallRequest: {
            /** Tenant */
            tenant?: string | null;
            /** Task */
            task: string;
            /** Loop */
            loop?: string | null;
            /**
             * Limit
             * @default 5
             */
            limit: number;
            /**
             * Budget
             * @default 600
             */
            budget: number;
            /**
             * Tags
             * @default []
             */
            tags: string[];
            /**
             * Match
             * @default any
             * @enum {string}
             */
            match: "any" | "all";
            /**
             * Form
             * @default messages
             * @enum {string}
             */
            form: "messages" | "text" | "found";
            /**
             * Begins
             * @default true
             */
            begins: boolean;
            /**
             * Memory Key
             * @default
             */
            memory_key: string;
            /**
             * Model
             * @description The model, if known.
             * @default
             */
            model: string;
            /**
             * Checks
             * @default []
             */
            checks: string[];
            /**
             * Check Ids
             * @default []
             */
            check_ids: string[];
            /**
             * Tell
             * @default both
             * @enum {string}
             */
            tell: "both" | "rules" | "examples";
            /**
             * Withholds
             * @default true
             */
            withholds: boolean;
        };
        /**
         * RuleCall
         * @description A call that kept or broke a rule, or was denied for it, and when.
         *
         *     The agent `was_told` the rule before this call, or at this call.
         */
        RuleCall: {
            /**
             * Deed
             * @enum {string}
             */
            deed: "kept" | "broken" | "denied";
            /** Call */
            call: string;
            /** Session */
            session: string;
            /** At */
            at: number;
            /** Was Told */
            was_told: boolean;
        };
        /**
         * RuleLedger
         * @description How a rule was kept in the recorded sessions, since it was stated.
         *
         *     It was told at so many `starts` of sessions, and `told` before so many calls. So
         *     many calls have `kept` it, which did what it wants, and `broken` it, which did what
         *     it forbids, told or not; of these, `ignored` came after the session was told, and
         *     `mixed` also did what the rule wants. `denied` calls did not run. `calls` are all of
         *     these calls, oldest first.
         */
        RuleLedger: {
            /**
             * Starts
             * @default 0
             */
            starts: number;
            /**
             * Told
             * @default 0
             */
            told: number;
            /**
             * Kept
             * @default 0
             */
            kept: number;
            /**
             * Broken
             * @default 0
             */
            broken: number;
            /**
             * Denied
             * @default 0
             */
            denied: number;
            /**
             * Ignored
             * @default 0
             */
            ignored: number;
            /**
             * Mixed
             * @default 0
             */
            mixed: number;
            /**
             * Calls
             * @default []
             */
            calls: components["schemas"]["RuleCall"][];
        };
        /**
         * RulePart
         * @description What a rule forbids or wants: the words of a command, a path or a name in code.
         *
         *     `deed` is what is done with it. It does not count in files that have the word
         *     `outside` in their path.
         */
        RulePart: {
            /** Words */
            words: string[];
            /**
             * Deed
             * @default use
             * @enum {string}
             */
            deed: "use" | "edit" | "add";
            /**
             * Outside
             * @default
             */
            outside: string;
        };
        /**
         * RuleParts
         * @description The parts of a rule, in their order.
         */
        RuleParts: {
            /**
             * Forbidden
             * @default []
             */
            forbidden: components["schemas"]["RulePart"][];
            /**
             * Wanted
             * @default []
             */
            wanted: components["schemas"]["RulePart"][];
        };
        /**
         * StatedRule
         * @description A rule that a user has stated, as it is stored.
         *
         *     `id`, `state` and `trust` are those of its lesson. The text of a rule that waits in
         *     quarantine is empty; `entry` is its id there. The user said it `seen` times, at
         *     first and last at the times `first_said` and `last_said`, in seconds since 1970; it
         *     `is_old` if that was `MAX_RULE_DAYS` ago. It was retired at the time `retired_at`, 0
         *     if it is told still. It `ended` older rules. Calls that break it are `denied` if the
         *     user wants it, and `allowed` if he decided against it. Its `parts` are what it
         *     forbids and wants, and what it wants is said as `instead`. `files` are the digests
         *     of the files that it names, by their paths, and `note` says which of them changed
         *     since. A rule for all projects holds `everywhere`. `ledger` says how it was kept,
         *     where that was asked.
         */
        StatedRule: {
            /** Text */
            text: string;
            /**
             * Id
             * @default 0
             */
            id: number;
            /**
             * State
             * @default unverified
             * @enum {string}
             */
            state: "unverified" | "verified" | "quarantined" | "retired" | "superseded";
            /**
             * Trust
             * @default user
             * @enum {string}
             */
            trust: "user" | "local" | "outside";
            /**
             * Seen
             * @default 1
             */
            seen: number;
            /**
             * First Said
             * @default 0
             */
            first_said: number;
            /**
             * Last Said
             * @default 0
             */
            last_said: number;
            /**
             * Entry
             * @default 0
             */
            entry: number;
            /**
             * Is Old
             * @default false
             */
            is_old: boolean;
            /**
             * Retired At
             * @default 0
             */
            retired_at: number;
            /**
             * Ended
             * @default []
             */
            ended: string[];
            /**
             * Denied
             * @default false
             */
            denied: boolean;
            /**
             * Allowed
             * @default false
             */
            allowed: boolean;
            /**
             * @default {
             *       "forbidden": [],
             *       "wanted": []
             *     }
             */
            parts: components["schemas"]["RuleParts"];
            /**
             * Instead
             * @default
             */
            instead: string;
            /** Files */
            files?: {
                [key: string]: string;
            };
            /**
             * Note
             * @default
             */
            note: string;
            /**
             * Everywhere
             * @default false
             */
            everywhere: boolean;
            /**
             * @default {
             *       "starts": 0,
             *       "told": 0,
             *       "kept": 0,
             *       "broken": 0,
             *       "denied": 0,
             *       "ignored": 0,
             *       "mixed": 0,
             *       "calls": []
             *     }
             */
            ledger: components["schemas"]["RuleLedger"];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    loops_begin: {
        parameters: {
            query?: {
                /** @description A project; by default the key's first. */
                project?: string | null;
            };
            header?: never;
            path: {
                /** @description The id of a loop. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewLoop"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description The loop is new. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    loops_attempt: {
        parameters: {
            query?: {
                /** @description A project; by default the key's first. */
                project?: string | null;
            };
            header?: never;
            path: {
                /** @description The id of a loop. */
                id: string;
                /** @description The number of an attempt, from 1. */
                n: number;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewAttempt"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    recall_recall: {
        parameters: {
            query?: {
                /** @description A project; by default the key's first. */
                project?: string | null;
            };
            header?: {
                /** @description A call that is repeated with this key takes effect only once and gets the same answer. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RecallRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RecallAnswer"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    reflections_before: {
        parameters: {
            query?: {
                /** @description A project; by default the key's first. */
                project?: string | null;
            };
            header?: {
                /** @description A call that is repeated with this key takes effect only once and gets the same answer. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ActionQuestion"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /**
                         * Failures
                         * @default []
                         */
                        failures: components["schemas"]["KnownFailure"][];
                        /**
                         * Waiting
                         * @default []
                         */
                        waiting: number[];
                        /**
                         * Checks
                         * @default []
                         */
                        checks: components["schemas"]["LessonCheck"][];
                        /**
                         * Rules
                         * @default []
                         */
                        rules: components["schemas"]["StatedRule"][];
                        /**
                         * Silence
                         * @default
                         */
                        silence: string;
                        /** Release */
                        release: string;
                    };
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    reflections_seen: {
        parameters: {
            query?: {
                /** @description A project; by default the key's first. */
                project?: string | null;
            };
            header?: {
                /** @description A call that is repeated with this key takes effect only once and gets the same answer. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Question"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
