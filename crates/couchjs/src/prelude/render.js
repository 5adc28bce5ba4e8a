// Functions of design documents: shows, lists, updates, filters, validation and rewrites.
// Evaluates to a function of the tools that returns one responder per kind of function. A responder
// gets the function, the design document and the arguments, and returns a line of JSON.
(function (tools) {
  var host = tools.host, page = tools.page, bare = tools.bare, append = tools.append;
  var stringify = tools.stringify, apply = tools.apply, clear = tools.clear;
  var part = tools.part, described = tools.described, exhausted = tools.exhausted;
  var emitted = false, contentType;

  tools.define('emit', function emit() { emitted = true; });

  function line(list) { return stringify(bare(list)); }

  function joined(chunks) {
    var text = '';
    for (var i = 0; i < chunks.length; i++) { text += chunks[i]; }
    return text;
  }

  function reset() {
    clear();
    contentType = undefined;
  }

  function wrapped(response) {
    return typeof response === 'string' ? { body: response } : response;
  }

  function typed(response) {
    response.headers = response.headers || {};
    if (contentType && !response.headers['Content-Type']) {
      response.headers['Content-Type'] = contentType;
    }
    return response;
  }

  // Raises what a function threw while rendering `doc`, if given: as the error `name`, or unchanged if it names an
  // error itself, is null or undefined, or means that memory is exhausted.
  function raise(error, name, doc) {
    if (error == null || exhausted(error) || (part(error, 'error') && part(error, 'reason'))) { throw error; }
    var first = part(error, 0);
    if (first === 'error' || first === 'fatal') { throw error; }
    var stack = host.withoutModules(described(part(error, 'stack')));
    var reason = 'function raised error: ' + described(error) + ' \nstacktrace: ' + stack;
    tools.raised(reason, error, doc ? part(doc, '_id') : undefined, true);
    throw ['error', name, reason];
  }

  // Returns the request among the arguments. A parent may omit it, and any of its members.
  function requestOf(args) {
    var request = args[1];
    return typeof request === 'object' && request !== null ? request : {};
  }

  // Chooses among the handlers of provides() and calls the chosen one.
  function runHandlers(request, ddoc) {
    var accept = part(request.headers, 'Accept'), handlers = page.handlers, key, i;
    if (request.query && request.query.format) {
      key = request.query.format;
      contentType = host.typesOf(key)[0];
    } else if (accept) {
      var reversed = bare([]);
      for (i = handlers.length - 1; i >= 0; i--) { append(reversed, handlers[i]); }
      page.handlers = handlers = reversed;
      var candidates = bare([]);
      for (i = 0; i < handlers.length; i++) {
        var types = host.typesOf(handlers[i][0]);
        for (var j = 0; types && j < types.length; j++) { append(candidates, types[j]); }
      }
      contentType = host.bestMatch(stringify(candidates), accept);
      key = host.keyOf(contentType);
    } else {
      key = handlers[0][0];
      contentType = host.typesOf(key)[0];
    }
    for (i = 0; key && i < handlers.length && handlers[i][0] != key; i++) { }
    if (key && i < handlers.length && handlers[i][1]) { return apply(handlers[i][1], ddoc, []); }
    var offered = '';
    for (i = 0; i < handlers.length; i++) {
      offered += (i ? ', ' : '') + (host.typesOf(handlers[i][0]).join(', ') || handlers[i][0]);
    }
    throw ['error', 'not_acceptable',
      'Content-Type ' + (accept || key) + ' not supported, try one of: ' + offered];
  }

  function show(call, ddoc, args) {
    try {
      reset();
      var response = wrapped(apply(call, ddoc, args) || {}); returned(response);
      if (page.chunks.length) {
        response.headers = response.headers || {};
        for (var name in page.start) { response.headers[name] = page.start[name]; }
        response.body = joined(page.chunks) + (response.body || '');
        page.chunks = bare([]);
      }
      if (page.handlers.length) {
        var provided = wrapped(runHandlers(requestOf(args), ddoc) || {}); returned(provided);
        response.body = (response.body || '') + joined(page.chunks);
        response.body += provided.body || '';
        response = typed(response);
      }
      if (typeof response !== 'object') {
        throw ['error', 'render_error', 'undefined response from show function'];
      }
      return line(['resp', response]);
    } catch (error) {
      var path = requestOf(args).path;
      if (args[0] === null && part(path, 'length') > 5 && !exhausted(error)) {
        throw ['error', 'not_found', 'document not found'];
      }
      raise(error, 'render_error', args[0]);
    } finally {
      reset();
    }
  }

  function flush(label) {
    var part = page.start ? [label, page.chunks, page.start] : [label, page.chunks];
    page.chunks = bare([]);
    page.start = null;
    return line(part);
  }

  function list(call, ddoc, args) {
    var begun = false, ended = false;
    function nextRow() {
      if (ended) { return null; }
      if (begun) { host.answer(flush('chunks')); } else {
        begun = true;
        page.start = typed(page.start || {});
        host.answer(flush('start'));
      }
      var row = host.nextRow();
      if (!row) {
        ended = true;
        return null;
      }
      return row[1];
    }
    try {
      reset();
      page.list = nextRow;
      var tail = apply(call, ddoc, args);
      if (page.handlers.length) { tail = runHandlers(requestOf(args), ddoc); } returned(tail);
      if (!begun) { nextRow(); }
      if (tail !== undefined) { append(page.chunks, tail); }
      return flush('end');
    } catch (error) {
      raise(error, 'render_error');
    } finally {
      reset();
    }
  }

  function update(call, ddoc, args) {
    try {
      reset();
      if (requestOf(args).method === 'GET') {
        throw ['error', 'method_not_allowed', 'Update functions do not allow GET'];
      }
      var result = apply(call, ddoc, args), doc = result[0], response = result[1]; returned(result);
      if (typeof response !== 'string' && (typeof response !== 'object' || response === null)) {
        throw ['error', 'render_error', 'undefined response from update function'];
      }
      return line(['up', doc, wrapped(response)]);
    } catch (error) {
      raise(error, 'render_error', args[0]);
    }
  }

  function documentsOf(args) {
    if (!tools.isArray(args[0])) {
      throw ['error', 'query_protocol_error', 'a filter needs a list of documents'];
    }
    return args[0];
  }

  function filter(call, ddoc, args) {
    var docs = documentsOf(args), request = args[1], verdicts = bare([]);
    for (var i = 0; i < docs.length; i++) { host.atDocument(i);
      append(verdicts, !!returned(apply(call, ddoc, [docs[i], request])));
    }
    return line([true, verdicts]);
  }

  function viewFilter(call, ddoc, args) {
    var docs = documentsOf(args), verdicts = bare([]);
    for (var i = 0; i < docs.length; i++) { host.atDocument(i);
      emitted = false;
      returned(call(docs[i]));
      append(verdicts, emitted);
    }
    return line([true, verdicts]);
  }

  // Returns what a validation function threw, as JSON text. Raises a list that is an error or would be
  // taken for a log line, and a value that JSON cannot express. If such a value is a refusal, returns it with
  // the text of its reason instead, except under CouchDB, where it is raised too.
  function refusal(error) {
    var text;
    try { text = stringify(error); } catch (failed) {
      if (exhausted(failed) || !host.textReasons()) { throw failed; }
      var names = ['forbidden', 'unauthorized'];
      for (var i = 0; i < names.length; i++) {
        var reason = part(error, names[i]), refused = { __proto__: null };
        if (reason === undefined) { continue; }
        refused[names[i]] = described(reason);
        return stringify(refused);
      }
    }
    if (text === undefined) { throw error; }
    if (text[0] === '[') {
      // What is sent is judged: getters and toJSON may return something else each time.
      var sent = bare(tools.parse(text)), first = sent[0];
      if (first === 'log' || first === 'error') { throw error; }
      if (first === 'fatal' &&
          !(sent.length === 3 && typeof sent[1] === 'string' && typeof sent[2] === 'string')) {
        throw error;
      }
    }
    return text;
  }

  function validate(call, ddoc, args) {
    try { returned(apply(call, ddoc, args)); } catch (error) {
      if (exhausted(error) || error === null || error === undefined) { throw error; }
      if (part(error, 'name') && part(error, 'stack')) { throw error; }
      return refusal(error);
    }
    return '1';
  }

  function rewrite(call, ddoc, args) {
    var result;
    try { result = returned(apply(call, ddoc, args)); } catch (error) { raise(error, 'rewrite_error'); }
    if (!result) { return line(['no_dispatch_rule']); }
    if (typeof result === 'string') { result = { path: result, method: part(args[0], 'method') }; }
    return line(['ok', result]);
  }

  // Records and returns the value that a function returned: a promise causes a warning.
  function returned(value) {
    if (typeof value === 'object') { host.returned(value); }
    return value;
  }

  return {
    __proto__: null, shows: show, lists: list, updates: update, filters: filter, views: viewFilter,
    validate_doc_update: validate, rewrites: rewrite
  };
})
