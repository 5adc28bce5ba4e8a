/// <reference lib="esnext.disposable" />

export type Json = any;
export type Doc = { _id?: string; [member: string]: Json };
export type DesignDoc = { _id: string; language?: string; [member: string]: Json };
export type Row = { id?: string; key?: Json; value?: Json; doc?: Doc | null };
export type Response = { code?: number; headers?: Record<string, string>; body?: string; base64?: string; json?: Json };
export type Fault = "client" | "function" | "query_server" | "host" | "settee";

/** The options of every call that runs functions. */
export interface Options {
  /** How long it may take to get a process, and how long each answer may take, in milliseconds. */
  timeoutMs?: number;
  /** The pool, or the group of pools, that lends the process. */
  pool?: string;
  group?: string;
  /** Whether to return a Report instead of the value alone. */
  report?: boolean;
  requestId?: string;
  /** Aborts the call and frees its process. */
  signal?: AbortSignal;
}

/** The options of calls with functions outside design documents. */
export interface FunctionOptions extends Options {
  /** The language of `pool` or `group`, or `javascript`, if left out. */
  lang?: string;
  /** The database that the functions belong to. */
  db?: string;
}

export interface MapOptions extends FunctionOptions {
  /** Modules by name that the functions may require. */
  lib?: Json;
}

export interface ReduceOptions extends FunctionOptions {
  finalize?: boolean;
  context?: string;
}

export interface CompileOptions extends FunctionOptions {
  name?: string;
  type?: string;
}

export interface RequestOptions extends Options {
  req?: Json;
}

export interface ListOptions extends RequestOptions {
  head?: Json;
}

export interface ValidateOptions extends Options {
  userCtx?: Json;
  secObj?: Json;
}

export interface LeaseOptions {
  lang?: string;
  db?: string;
  ddoc?: DesignDoc;
  pool?: string;
  group?: string;
  any?: boolean;
  lane?: "interactive" | "bulk";
  timeoutMs?: number;
  /** Aborts the wait for a process. */
  signal?: AbortSignal;
}

/** What went wrong in a function, as far as known. */
export interface FunctionError {
  /** The function's path in the design document, or its index in `funs`. */
  function?: string | number;
  /** The id of the document. */
  doc?: string;
  name: string;
  message: string;
  module?: string;
  line?: number;
  column?: number;
  source_line?: string;
  caret?: string;
  stack?: string[];
}

/** The result of a call with `report: true`: its value, log lines, errors and cost. */
export interface Report<T> {
  value: T;
  request_id?: string;
  pool?: string;
  logs?: { level: string; message: string }[];
  logs_dropped?: number;
  errors?: FunctionError[];
  errors_dropped?: number;
  cost?: Record<string, number>;
}

export type Outcome<T, O> = O extends { report: true } ? Report<T> : T;

/** The pieces of a list's body. Can be iterated only once. */
export class Chunks implements AsyncIterable<string> {
  readonly response: Response;
  [Symbol.asyncIterator](): AsyncIterator<string>;
  /** Ends the list before all its pieces are read. */
  close(): Promise<void>;
}

/** A process that this client holds. */
export class Proc {
  readonly token: string;
  readonly pool: string;
  readonly lang: string;
  readonly osPid: number | null;
  readonly config: Json;
  /** Why the service revoked the process; null while it has not. */
  readonly down: { down: string; name: string; reason: string } | null;
  /** Makes the process forget its functions; must be the first prompt. */
  reset(): Promise<Json>;
  /** Sends a command, such as `["map_doc", doc]`, and returns the answer of the process. */
  prompt(command: Json[], options?: { timeoutMs?: number; signal?: AbortSignal }): Promise<Json>;
  setTimeout(timeoutMs: number): Promise<boolean>;
  /** Returns the process; with "fail" it is not used again. False if this client does not hold it. */
  retProc(status?: "ok" | "fail"): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The state of a process. */
export interface Process {
  name: string;
  pool: string;
  language: string;
  os_pid: number | null;
  state: string;
  state_ms: number;
  [member: string]: Json;
}

/** A daemon's problems, the worst first. `unknown` is the status of another daemon that has not reported yet. */
export interface Health {
  status: "ok" | "warning" | "critical" | "unknown";
  problems: { kind: string; severity: "warning" | "critical"; cause: string; remedy: string; [member: string]: Json }[];
  [member: string]: Json;
}

/** The worst status in a fleet, and the health of each daemon, starting with the one asked. */
export interface FleetHealth {
  status: "ok" | "warning" | "critical";
  daemons: Health[];
}

/** The state of a pool. */
export interface Pool {
  name: string;
  language: string;
  group: string | null;
  hard_limit: number;
  used: number;
  free: number;
  waiting: number;
  longest_wait_ms: number;
  [member: string]: Json;
}

/** What a database has cost; `db` is null for functions without a database. */
export interface Tenant {
  db: string | null;
  calls: number;
  errors: number;
  kills: number;
  wait_us: number;
  run_us: number;
  cpu_us: number;
  bytes: number;
}

/** The state of a replication. A document without a job lacks some members. */
export interface Job {
  id?: string | null;
  doc_id?: string | null;
  source?: string | null;
  target?: string | null;
  state: string;
  [member: string]: Json;
}

/**
 * Selects replications. `states` are comma-separated names; `match` (the id of the document or the job), `source`,
 * `target`, `reason` and `daemon` are patterns with `*` and `?`.
 */
export interface JobsQuery {
  states?: string;
  match?: string;
  source?: string;
  target?: string;
  reason?: string;
  daemon?: string;
  sort?: "id" | "trouble";
  limit?: number;
  skip?: number;
}

/** Options of node:tls: the authorities' certificates, a certificate and its key, as PEM texts. */
export interface TlsOptions {
  ca?: string | Uint8Array;
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  servername?: string;
}

export interface ClientOptions {
  user?: string;
  password?: string;
  tls?: TlsOptions;
  /**
   * How long a call is retried, in seconds since its first failure, if the connection is lost or the error has `retry`.
   * By default 30 seconds, but only if the connection is lost; 0: never.
   */
  retryFor?: number;
  /** How long a call may take including retries, in milliseconds. */
  callMs?: number;
}

/** A client of the service at `unix:PATH`, a path, `tcp:HOST:PORT`, `tls:HOST:PORT`, `http://HOST:PORT/` or `https://HOST:PORT/`. */
export class Client {
  constructor(address: string, options?: ClientOptions);
  /** For each document, the `[key, value]` rows of each function. */
  map<O extends MapOptions>(funs: Json[], docs: Doc[], options?: O): Promise<Outcome<[Json, Json][][][], O>>;
  /** Maps documents as they arrive. Takes at most 300 documents whose rows are not yet yielded. */
  map(funs: Json[], docs: Iterable<Doc> | AsyncIterable<Doc>, options?: MapOptions & { report?: false }): AsyncGenerator<[Json, Json][][], void, undefined>;
  /** A result for each function, from rows `[[key, id], value]`. */
  reduce<O extends ReduceOptions>(funs: string[], rows: Json[], options?: O): Promise<Outcome<Json[], O>>;
  /** A result for each function, from earlier results: rows with a value for each function. */
  rereduce<O extends ReduceOptions>(funs: string[], values: Json[], options?: O): Promise<Outcome<Json[], O>>;
  /** Returns true; throws a CompilationError if the function does not compile. */
  compile<O extends CompileOptions>(fun: Json, options?: O): Promise<Outcome<true, O>>;
  /** Returns the documents that match a Mango selector. Each needs an `_id`; design documents never match. */
  select<D extends Doc, O extends Options>(selector: Json, docs: D[], options?: O): Promise<Outcome<D[], O>>;
  /** Returns, for each document, whether it passes a filter function. */
  filter<O extends RequestOptions>(db: string, ddoc: DesignDoc, name: string, docs: Doc[], options?: O): Promise<Outcome<boolean[], O>>;
  /** Returns, for each document, whether a view's map function emits something. */
  filterView<O extends Options>(db: string, ddoc: DesignDoc, name: string, docs: Doc[], options?: O): Promise<Outcome<boolean[], O>>;
  /** Returns, for each edit, true or what the function threw. */
  validate<O extends ValidateOptions>(db: string, ddoc: DesignDoc, edits: { newDoc: Doc; oldDoc?: Doc | null }[], options?: O): Promise<Outcome<(true | { forbidden: Json } | { unauthorized: Json })[], O>>;
  show<O extends RequestOptions>(db: string, ddoc: DesignDoc, name: string, doc?: Doc | null, options?: O): Promise<Outcome<Response, O>>;
  /** Returns the document, if any, and the response; writing the document is up to the caller. */
  update<O extends RequestOptions>(db: string, ddoc: DesignDoc, name: string, doc?: Doc | null, options?: O): Promise<Outcome<[Doc | null, Response], O>>;
  /** The rewritten request; null if no rule matches. */
  rewrite<O extends Options>(db: string, ddoc: DesignDoc, req: Json, options?: O): Promise<Outcome<Json, O>>;
  /** Over HTTP, rows are sent as they are produced, and pieces arrive as they are made. */
  list<O extends ListOptions>(db: string, ddoc: DesignDoc, name: string, rows: Iterable<Row> | AsyncIterable<Row>, options?: O): Promise<Outcome<Chunks, O>>;
  /** The state of each process, the longest running first. */
  ps(pool?: string): Promise<{ total_rows: number; procs: Process[] }>;
  /** Ends a process, by its `name` in `ps`: kills it if it is answering or `now` is set, else stops it gracefully. */
  kill(name: string, options?: { now?: boolean }): Promise<{ how: "killed" | "told" | "ending"; proc: Process }>;
  /** What is wrong with the service, and what to do about it. */
  health(options: { fleet: true }): Promise<FleetHealth>;
  health(options?: { fleet?: false }): Promise<Health>;
  pools(): Promise<{ total_rows: number; pools: Pool[] }>;
  /** What databases have cost since counting began. */
  tenants(query?: { db?: string; sort?: string; limit?: number }): Promise<{ since: string; until: string; total_rows: number; tenants: Tenant[] }>;
  /** The replications that the query selects. */
  jobs(query?: JobsQuery): Promise<{ total_rows: number; offset: number; jobs: Job[] }>;
  /** Makes any call of the socket by its own name, with its own arguments. Not retried if the connection is lost. */
  call(name: string, args?: Record<string, Json>): Promise<Json>;
  /** Borrows a process, to be returned with `retProc`. Its first prompt is `reset`. */
  getProc(options: LeaseOptions): Promise<Proc>;
  /** Borrows and resets a process. It is returned after the block; without one, by the caller (`await using`). */
  lease<T>(options: LeaseOptions, block: (proc: Proc) => Promise<T>): Promise<T>;
  lease(options: LeaseOptions): Promise<Proc>;
  close(): void;
}

/** Any failure of a call. Members that the service did not send are undefined. */
export class SetteeError extends Error {
  readonly name: string;
  readonly reason: Json;
  readonly fault: Fault;
  readonly retry: boolean;
  /**
   * Whether the query server printed more lines than requested, so that earlier answers of the process may belong to
   * other prompts.
   */
  readonly shifted: boolean;
  readonly details: Record<string, Json>;
  readonly report?: Report<undefined>;
  readonly phase?: string;
  readonly fatal?: boolean;
  readonly exit?: string;
  readonly status?: number;
  readonly stderr?: string[];
  readonly proc?: string;
  readonly db?: string;
  readonly ddoc?: string;
  readonly function?: string;
  readonly doc?: string;
  readonly limit_ms?: number;
  readonly retry_after_ms?: number;
  readonly line?: number;
}
/**
 * No connection could be made, it ended before the reply, or the service is stopping. `sent` is whether the service may
 * have received the call. `retry` is false if a certificate cannot be verified.
 */
export class Unavailable extends SetteeError {
  readonly name: "unavailable";
  readonly sent: boolean;
}
/** The client was closed before the call, or while it waited. */
export class ClientClosed extends SetteeError {
  readonly name: "client_closed";
}
/** The peer does not speak the protocol. */
export class ProtocolError extends SetteeError {
  readonly name: "protocol_error";
}
/** The service, or a function that it ran, reported an error. One without a class below is a plain ServiceError. */
export class ServiceError extends SetteeError {}
/** An argument is missing or wrong. */
export class BadRequest extends ServiceError {
  readonly name: "bad_request";
}
/** A function does not compile. */
export class CompilationError extends ServiceError {
  readonly name: "compilation_error";
}
/** The name or the password is wrong, a login is needed, or a function threw `unauthorized`. */
export class Unauthorized extends ServiceError {
  readonly name: "unauthorized";
}
/** The user may not do this, or a function threw `forbidden`. */
export class Forbidden extends ServiceError {
  readonly name: "forbidden";
}
/** No pool, group, process or function has this name. */
export class NotFound extends ServiceError {
  readonly name: "not_found";
}
/** A time limit was exceeded; `phase` says which. */
export class CallTimeout extends ServiceError {
  readonly name: "timeout";
  readonly phase: string;
}
/** The service accepts no more work for now. `retry_after_ms` says when to retry, if known. */
export class Busy extends ServiceError {
  readonly name: "pool_busy" | "tenant_busy" | "throttled" | "too_many_held" | "too_many_requests";
}
/** The process could not be started, or ended; `exit` and `stderr` say how. */
export class ProcessError extends ServiceError {
  readonly name: "os_process_error" | "out_of_memory";
}
