"use strict";
// Why a call failed: a class for each reaction that a program may need.

const MEMBERS = ["phase", "fatal", "exit", "status", "stderr", "proc", "db", "ddoc", "function", "doc", "limit_ms",
  "retry_after_ms", "line"];

// Any failure of a call. `details` is the error as received; its members are also the error's own.
class SetteeError extends Error {
  constructor(details, options) {
    const { name = "unknown_error", reason } = details;
    super(typeof reason === "string" ? reason : JSON.stringify(reason), options);
    this.name = String(name);
    this.reason = reason;
    this.fault = details.fault ?? "settee";
    this.retry = Boolean(details.retry);
    this.shifted = Boolean(details.shifted);
    this.details = details;
    for (const member of MEMBERS) if (member in details) this[member] = details[member];
  }
}

// No connection could be made, or it ended before the reply, or the service is stopping. `sent`: the service may have
// received the call. An unverifiable certificate (reported by the `socket` of node:tls) is not worth a retry.
class Unavailable extends SetteeError {
  constructor(reason, sent = true, cause = undefined, socket = undefined) {
    super({ name: "unavailable", reason, fault: "host", retry: !socket?.authorizationError }, { cause });
    this.sent = sent;
  }
}

// The client was closed before the call, or while it waited.
class ClientClosed extends SetteeError {
  constructor() {
    super({ name: "client_closed", reason: "this client was closed", fault: "client" });
  }
}

// The peer does not speak the protocol: another program listens there, or another version.
class ProtocolError extends SetteeError {
  constructor(reason) {
    super({ name: "protocol_error", reason, fault: "settee", retry: false });
  }
}

// The service, or a function that it ran, reported an error. One without a class below is a plain ServiceError.
class ServiceError extends SetteeError {}
class BadRequest extends ServiceError {}
class CompilationError extends ServiceError {}
class Unauthorized extends ServiceError {}
class Forbidden extends ServiceError {}
class NotFound extends ServiceError {}
class CallTimeout extends ServiceError {}
class Busy extends ServiceError {}
class ProcessError extends ServiceError {}

const BY_NAME = new Map(Object.entries({
  bad_request: BadRequest,
  compilation_error: CompilationError,
  unauthorized: Unauthorized,
  forbidden: Forbidden,
  not_found: NotFound,
  timeout: CallTimeout,
  pool_busy: Busy,
  tenant_busy: Busy,
  throttled: Busy,
  too_many_held: Busy,
  too_many_requests: Busy,
  os_process_error: ProcessError,
  out_of_memory: ProcessError,
}));

// Makes an error from a reply's `error` object.
function serviceError(details) {
  if (typeof details !== "object" || details === null) return new ProtocolError("an error that is not an object");
  if (["shutting_down", "draining"].includes(details.name)) return new Unavailable(details.reason);
  return new (BY_NAME.get(details.name) ?? ServiceError)(details);
}

// Makes the error for a call that cannot be made.
const mistake = (reason) => serviceError({ name: "bad_request", reason, fault: "client" });

module.exports = {
  SetteeError, Unavailable, ClientClosed, ProtocolError, ServiceError, BadRequest, CompilationError, Unauthorized,
  Forbidden, NotFound, CallTimeout, Busy, ProcessError, serviceError, mistake,
};
