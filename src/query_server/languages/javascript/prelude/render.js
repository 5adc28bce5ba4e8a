// Functions of design documents: shows, lists, updates, filters, validation and rewrites.
// Evaluates to a function of the tools, which answers one responder per kind of function. A
// responder gets the function, the design document and the arguments; it answers a line of JSON.
(function (tools) {
  var host = tools.host, page = tools.page, bare = tools.bare, append = tools.append;
  var stringify = tools.stringify, apply = tools.apply, clear = tools.clear;
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

  // Raises the error of a function that rendered something: as it is, or as `name` with its text.
  function raise(error, name) {
    if (error.error && error.reason) { throw error; }
    if (error[0] === 'error' || error[0] === 'fatal') { throw error; }
    if (error.name === 'InternalError' && error.message === 'out of memory') { throw error; }
    var reason = 'function raised error: ' + tools.text(error) + ' \nstacktrace: ' + error.stack;
    tools.write(reason);
    throw ['error', name, reason];
  }

  // Chooses among the handlers of provides() and calls the chosen one.
  function runHandlers(request, ddoc) {
    var accept = request.headers['Accept'], handlers = page.handlers, key, i;
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
      var response = wrapped(apply(call, ddoc, args) || {});
      if (page.chunks.length) {
        response.headers = response.headers || {};
        for (var name in page.start) { response.headers[name] = page.start[name]; }
        response.body = joined(page.chunks) + (response.body || '');
        page.chunks = bare([]);
      }
      if (page.handlers.length) {
        var provided = wrapped(runHandlers(args[1], ddoc) || {});
        response.body = (response.body || '') + joined(page.chunks);
        response.body += provided.body || '';
        response = typed(response);
      }
      if (typeof response !== 'object') {
        throw ['error', 'render_error', 'undefined response from show function'];
      }
      return line(['resp', response]);
    } catch (error) {
      if (args[0] === null && args[1].path.length > 5) {
        throw ['error', 'not_found', 'document not found'];
      }
      raise(error, 'render_error');
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
      if (page.handlers.length) { tail = runHandlers(args[1], ddoc); }
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
      if (args[1].method === 'GET') {
        throw ['error', 'method_not_allowed', 'Update functions do not allow GET'];
      }
      var result = apply(call, ddoc, args), doc = result[0], response = result[1];
      if (typeof response !== 'string' && (typeof response !== 'object' || response === null)) {
        throw ['error', 'render_error', 'undefined response from update function'];
      }
      return line(['up', doc, wrapped(response)]);
    } catch (error) {
      raise(error, 'render_error');
    }
  }

  function filter(call, ddoc, args) {
    var docs = args[0], request = args[1], verdicts = bare([]);
    for (var i = 0; i < docs.length; i++) {
      append(verdicts, !!apply(call, ddoc, [docs[i], request]));
    }
    return line([true, verdicts]);
  }

  function viewFilter(call, ddoc, args) {
    var docs = args[0], verdicts = bare([]);
    for (var i = 0; i < docs.length; i++) {
      emitted = false;
      call(docs[i]);
      append(verdicts, emitted);
    }
    return line([true, verdicts]);
  }

  function validate(call, ddoc, args) {
    try { apply(call, ddoc, args); } catch (error) {
      if (error.name && error.stack) { throw error; }
      return stringify(error) || 'null';
    }
    return '1';
  }

  function rewrite(call, ddoc, args) {
    var result;
    try { result = apply(call, ddoc, args); } catch (error) { raise(error, 'rewrite_error'); }
    if (!result) { return line(['no_dispatch_rule']); }
    if (typeof result === 'string') { result = { path: result, method: args[0].method }; }
    return line(['ok', result]);
  }

  return {
    __proto__: null, shows: show, lists: list, updates: update, filters: filter, views: viewFilter,
    validate_doc_update: validate, rewrites: rewrite
  };
})
