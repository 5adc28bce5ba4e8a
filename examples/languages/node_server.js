#!/usr/bin/env node
// A query server for JavaScript on Node: one JSON array a line in, one JSON value a line out.
//
//   [query_servers]
//   javascript = "node examples/languages/node_server.js"
//
// It supports views, libraries, search indexes and design documents with all kinds of functions, but
// not `provides` and `registerType`. A reset makes a new vm context for views; design documents
// have another that stays. Node's vm keeps functions apart from the server, but it is not a sandbox: run
// only functions written by people you trust.
'use strict';
const fs = require('fs');
const vm = require('vm');

// Lines are read synchronously, one by one: a list function requests its next row in the middle of a call.
let input = Buffer.alloc(0);
function readLine() {
  const chunks = [input];
  let end = input.indexOf(10);
  for (let before = input.length; end < 0; before += chunks.at(-1).length) {
    const chunk = Buffer.alloc(65536);
    const length = fs.readSync(0, chunk);
    if (length === 0) return null;
    chunks.push(chunk.subarray(0, length));
    const found = chunks.at(-1).indexOf(10);
    if (found >= 0) end = before + found;
  }
  input = Buffer.concat(chunks);
  const line = input.toString('utf8', 0, end);
  input = input.subarray(end + 1);
  return line;
}

function printLine(text) {
  const bytes = Buffer.from(text + '\n');
  for (let sent = 0; sent < bytes.length; ) sent += fs.writeSync(1, bytes, sent);
}

// Runs inside a context, so that functions see only objects of that context. Returns a function that
// takes a command as text and prints the answer.
function server(readLine, printLine) {
  const { parse, stringify } = JSON;
  const respond = (value) => printLine(stringify(value === undefined ? null : value));
  let config = {}, lib = null, functions = [], rows = [], ddocs = {};
  let list = null;   // while a list function runs: what is to be sent, and whether it started
  const running = () => {
    if (list) return list;
    throw new Error('only a list function may do this');
  };

  // The globals of functions.
  globalThis.emit = (key, value) => { rows.push([key, value]); };
  globalThis.index = (name, value, options) => {
    if (typeof name !== 'string') throw fail('TypeError', 'name must be a string');
    if (name[0] === '_') throw fail('ReservedName', 'name must not start with an underscore');
    rows.push([name, value, options || {}]);
  };
  globalThis.log = (text) => respond(['log', typeof text === 'string' ? text : String(stringify(told(text)))]);
  globalThis.sum = (values) => values.reduce((a, b) => a + b, 0);
  globalThis.isArray = Array.isArray;
  globalThis.toJSON = (value) => stringify(value);
  globalThis.start = (response) => { Object.assign(running(), { response: response || {}, late: true }); };
  globalThis.send = (text) => { running().chunks.push(text.toString()); };
  globalThis.getRow = () => {
    if (running().ended) return null;
    flush();
    const command = parse(readLine());
    if (command[0] === 'list_end') { list.ended = true; return null; }
    if (command[0] !== 'list_row') throw ['fatal', 'list_error', `not a row '${command[0]}'`];
    return command[1];
  };

  function flush() {
    const response = { headers: {}, ...list.response };
    if (!list.started) respond(['start', list.chunks, response]);
    else respond(list.late ? ['chunks', list.chunks, response] : ['chunks', list.chunks]);
    Object.assign(list, { started: true, late: false, chunks: [] });
  }

  const fail = (name, message) => Object.assign(new Error(message), { name });
  const told = (e) => (e && e.stack && e.message !== undefined ? { error: e.name, message: e.message } : e);

  function compile(source, require) {
    if (!source) throw ['error', 'not_found', 'missing function'];
    let made;
    try {
      made = new Function('require', `return (\n${String(source).replace(/[\s;]+$/, '')}\n)`)(require);
    } catch (e) {
      throw ['error', 'compilation_error', `${e} (${source})`];
    }
    if (typeof made === 'function') return made;
    throw ['error', 'compilation_error', `Expression does not eval to a function. (${source})`];
  }

  // Modules are texts in a tree: a library, or a design document. `./` and `../` start at the module.
  function requirer(tree, cache = {}, parent = []) {
    return (path) => {
      const at = /^\.\.?\//.test(path) ? [...parent] : [];
      for (const part of path.split('/')) {
        if (part === '..') at.pop();
        else if (part !== '.') at.push(part);
      }
      const id = at.join('/');
      if (id in cache) return cache[id].exports;
      const source = at.reduce((node, part) => (node == null ? node : node[part]), tree);
      if (source === undefined) throw ['error', 'invalid_require_path', `Object has no property "${at.at(-1)}"`];
      if (typeof source !== 'string') {
        throw ['error', 'invalid_require_path', `Must require a JavaScript string, not: ${typeof source}`];
      }
      const module = (cache[id] = { id, exports: {} });
      try {
        const run = new Function('module', 'exports', 'require', source);
        run.call({}, module, module.exports, requirer(tree, cache, at.slice(0, -1)));
      } catch (e) {
        throw ['error', 'compilation_error', `Module require('${path}') raised error ${e}`];
      }
      return module.exports;
    };
  }

  function freeze(value) {
    if (value && typeof value === 'object') Object.values(Object.freeze(value)).forEach(freeze);
    return value;
  }

  // An error of one function does not affect the others, unless it concerns the server.
  function attempt(what, run, otherwise) {
    try {
      return run();
    } catch (e) {
      if (e === 'fatal_error') throw ['error', 'map_runtime_error', "function raised 'fatal_error'"];
      if (e == null || (Array.isArray(e) && e[0] === 'fatal')) throw e;
      if (e.name === 'InternalError') throw ['fatal', e.name, e.message];
      log(`function raised exception ${e}${what}`);
      return otherwise;
    }
  }

  function overDocument(doc) {
    freeze(doc);
    return functions.map((run) => attempt(` with doc._id ${doc._id}`, () => {
      rows = [];
      run(doc);
      return rows;
    }, []));
  }

  function reduce(sources, keys, values, again, length, context = '') {
    const results = sources.map((source) => {
      const run = compile(source);
      return attempt('', () => run(keys, values, again), null);
    });
    const output = stringify(results).length;
    const size = length - sources.reduce((total, source) => total + source.length, 0);
    const { reduce_limit: limit } = config;
    const { reduce_limit_ratio: ratio = 2 } = config;
    // A ratio without a threshold turns the check off.
    const missing = "reduce_limit_ratio" in config ? Infinity : 4096;
    const { reduce_limit_threshold: threshold = missing } = config;
    if (limit && output > threshold && output * ratio > size) {
      const sizes = `input size: ${size} output size: ${output} context: ${context}`;
      const text = `Reduce output must shrink more rapidly: ${sizes}`;
      if (limit !== 'log') throw ['error', 'reduce_overflow_error', text];
      log(`reduce_overflow_error: ${text}`);
    }
    return [true, results];
  }

  const response = (value, kind) => {
    if (typeof value === 'string') return { body: value };
    if (!value) return {};
    if (typeof value === 'object') return value;
    throw ['error', 'render_error', `undefined response from ${kind} function`];
  };

  // Reports an error of a rendering function as CouchDB does. Errors that it throws with a name and a
  // reason pass unchanged.
  function rendering(run) {
    try {
      return run();
    } catch (e) {
      if (Array.isArray(e) || (e && e.error && e.reason)) throw e;
      const text = `function raised error: ${e} \nstacktrace: ${e && e.stack}`;
      log(text);
      throw ['error', 'render_error', text];
    }
  }

  // The kinds of functions in design documents. `this` is the design document.
  const kinds = {
    shows: (run, ddoc, args) => rendering(() => ['resp', response(run.apply(ddoc, args), 'show')]),
    updates: (run, ddoc, [doc, req]) => {
      if (req.method === 'GET') throw ['error', 'method_not_allowed', 'Update functions do not allow GET'];
      return rendering(() => {
        const [changed, said] = run.apply(ddoc, [doc, req]);
        return ['up', changed, response(said, 'update')];
      });
    },
    filters: (run, ddoc, [docs, req]) => [true, docs.map((doc) => Boolean(run.apply(ddoc, [doc, req])))],
    views: (run, ddoc, [docs]) => [true, docs.map((doc) => {
      rows = [];
      run(doc);
      return rows.length > 0;
    })],
    validate_doc_update: (run, ddoc, args) => {
      try {
        run.apply(ddoc, args);
        return 1;
      } catch (e) {
        if (e === null || e === undefined || (e.name && e.stack)) throw e;
        return e;
      }
    },
    rewrites: (run, ddoc, args) => {
      try {
        const to = run.apply(ddoc, args);
        if (!to) return ['no_dispatch_rule'];
        return ['ok', typeof to === 'string' ? { path: to, method: args[0].method } : to];
      } catch (e) {
        throw ['error', 'rewrite_error', String(e && e.name ? e : stringify(e))];
      }
    },
    lists: (run, ddoc, args) => {
      list = { chunks: [], response: {}, started: false, late: false, ended: false };
      const tail = rendering(() => run.apply(ddoc, args));
      if (!list.started) getRow();
      if (tail !== undefined) list.chunks.push(tail);
      const end = list.late ? ['end', list.chunks, { headers: {}, ...list.response }] : ['end', list.chunks];
      list = null;
      return end;
    },
  };

  function inDesignDocument(id, path, args) {
    if (id === 'new') {
      ddocs[path] = { doc: args, compiled: {}, require: requirer(args) };
      return true;
    }
    const known = ddocs[id];
    if (!known) throw ['fatal', 'query_protocol_error', `uncached design doc: ${id}`];
    const kind = kinds[path[0]];
    if (!kind) throw ['fatal', 'unknown_command', `unknown ddoc command '${path[0]}'`];
    const name = path.join('/');
    if (!known.compiled[name]) {
      const source = path.slice(0, -1).reduce((node, part) => node[part], known.doc)[path.at(-1)];
      if (source === undefined) {
        throw ['error', 'not_found', `missing ${path[0]} function ${path.at(-1)} on design doc ${id}`];
      }
      known.compiled[name] = compile(source, known.require);
    }
    return kind(known.compiled[name], known.doc, args);
  }

  const commands = {
    reset: (given) => { config = given || {}; return true; },
    add_lib: (modules) => { lib = { views: { lib: modules } }; return true; },
    add_fun: (source) => { functions.push(compile(source, lib && requirer(lib))); return true; },
    map_doc: overDocument,
    index_doc: overDocument,
    ddoc: inDesignDocument,
  };

  // Answers one command; returns whether the server may go on.
  return (line) => {
    try {
      const command = parse(line);
      const [name, ...args] = Array.isArray(command) ? command : [];
      if (name === 'reduce') {
        const [sources, pairs, context] = args;
        const column = (at) => pairs.map((row) => row[at]);
        respond(reduce(sources, column(0), column(1), false, line.length, context));
      } else if (name === 'rereduce') {
        respond(reduce(args[0], null, args[1], true, line.length, args[2]));
      } else if (Object.hasOwn(commands, name)) {
        respond(commands[name](...args));
      } else {
        throw Array.isArray(command) ? ['fatal', 'unknown_command', `unknown command '${name}'`]
          : new TypeError('not an array');
      }
      return true;
    } catch (e) {
      const fatal = Array.isArray(e) && e[0] === 'fatal';
      if (Array.isArray(e) && (fatal || e[0] === 'error')) respond(['error', e[1], e[2]]);
      else if (e && e.error && e.reason) respond(['error', e.error, e.reason]);
      else if (e && e.name) respond(['error', e.name, e.stack ? {} : e]);
      else respond(e === null || e === undefined ? ['error', 'TypeError', {}] : ['error', 'unnamed_error', null]);
      return !fatal;
    }
  };
}

const world = () => vm.runInContext(`(${server})`, vm.createContext({}))(readLine, printLine);
const designDocuments = world();
let views = world();

for (let line; (line = readLine()) !== null; ) {
  let name;
  try {
    name = JSON.parse(line)?.[0];
  } catch {
    process.exit(1);   // the sender is out of step
  }
  if (name === 'reset') views = world();
  const goesOn = (name === 'ddoc' ? designDocuments : views)(line);
  if (!goesOn) process.exit(255);
}
