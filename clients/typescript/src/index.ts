export { Heedful, HeedfulError, Loop, Refused, Unreachable, UsageError } from "./client.ts";
export type {
  CallOptions,
  Finding,
  HeedfulOptions,
  History,
  OpenOptions,
  Problem,
  Recalled,
  RecallOptions,
  Report,
  Seen,
  Usage,
  Verdict,
} from "./client.ts";
export { judged } from "./judged.ts";
export type { Attempt, Judged, JudgedOptions } from "./judged.ts";
export { Run, Watch } from "./run.ts";
export type { WatchOptions } from "./run.ts";
