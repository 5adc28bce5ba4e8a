// Map, index and reduce functions of views. Evaluates to a function of the tools and of the kind of
// realm ("map", "nouveau" or "reduce"), which answers what the server calls. A function that only
// reads its document cannot tell whether that is frozen, and gets it as it is.
(function (tools, kind, reading) {
  var bare = tools.bare, append = tools.append, plain = tools.plain, stringify = tools.stringify;
  var freeze = tools.freeze, keys = tools.keys, part = tools.part, isArray = tools.isArray;
  var exhausted = tools.exhausted, described = tools.described, packed = tools.host.packed;
  var returned = tools.host.returned;

  // What a function emits, or indexes, for one document. The values of a row stand one after the
  // other. Rows of numbers, strings and the like are packed as the text that they become once there
  // are many; what can still change stays what it is until the function has ended.
  var rows = bare([]), count = 0, parts = null, indexing = false;
  // How many values there are before they are packed: a multiple of the values of each kind of row.
  var VALUES_MAX = 6144;

  function pack() {
    var text = packed(rows, width());
    parts = parts || bare([]);
    append(parts, text === undefined ? rows : text);
    rows = bare([]);
    count = 0;
  }

  // How many values a row has.
  function width() { return !indexing ? 2 : kind === 'nouveau' ? 1 : 3; }

  tools.define('emit', function emit(key, value) {
    if (indexing) { return; }
    rows[count++] = key;
    rows[count++] = typeof value === 'object' ? plain(value) : value;
    if (count >= VALUES_MAX) { pack(); }
  });

  function wrong(message) { return { name: 'TypeError', message: message }; }

  function checkName(name, message) {
    if (typeof name !== 'string') { throw wrong(message + typeof name); }
    if (name[0] === '_') {
      throw { name: 'ReservedName', message: 'name must not start with an underscore' };
    }
  }

  // Fields of the Lucene search (clouseau).
  function indexField(name, value, options) {
    var type = typeof value;
    checkName(name, 'name must be a string not ');
    if (type !== 'string' && type !== 'number' && type !== 'boolean') {
      throw wrong('value must be a string, a number or boolean not ' + type);
    }
    if (options && typeof options !== 'object') {
      throw wrong('options must be an object not ' + typeof options);
    }
    if (!indexing) { return; }
    rows[count++] = name;
    rows[count++] = value;
    rows[count++] = options || undefined;
    if (count >= VALUES_MAX) { pack(); }
  }

  // Fields of the Nouveau search.
  var nouveauTypes = {
    __proto__: null,
    double: { value: 'number', options: ['store', 'facet'] },
    string: { value: 'string', options: ['store', 'facet'] },
    text: { value: 'string', options: ['store'] },
    stored: { value: null, options: [] }
  };
  function nouveauField(type, name, value, options) {
    if (typeof type !== 'string') {
      throw wrong('type of type must be a string not ' + typeof type);
    }
    checkName(name, 'type of name must be a string not ');
    var rule = nouveauTypes[type], actual = typeof value;
    if (!rule) { throw wrong(type + ' not supported'); }
    if (rule.value === null) {
      if (actual !== 'string' && actual !== 'number') {
        throw wrong('type of ' + value + ' must be a string or number');
      }
    } else if (actual !== rule.value) {
      throw wrong('type of value must be a ' + rule.value + ' not ' + actual);
    }
    if (options && typeof options !== 'object') {
      throw wrong('type of options must be a object not ' + typeof options);
    }
    var field = { __proto__: null, '@type': type, name: name, value: value };
    for (var i = 0; options && i < rule.options.length; i++) {
      var option = rule.options[i];
      if (options[option] !== undefined) { field[option] = options[option]; }
    }
    if (!indexing) { return; }
    rows[count++] = field;
    if (count >= VALUES_MAX) { pack(); }
  }
  if (kind !== 'reduce') { tools.define('index', kind === 'nouveau' ? nouveauField : indexField); }

  function freezeDeeply(value) {
    freeze(value);
    var names = keys(value);
    for (var i = 0; i < names.length; i++) {
      var child = value[names[i]];
      if (typeof child === 'object' && child !== null) { freezeDeeply(child); }
    }
  }

  function isFatalWord(error) {
    try { return error == 'fatal_error'; } catch (failed) { return false; }
  }

  // An exception of a user function: a few end the command, the others are logged.
  function failed(error, doc) {
    if (error === null || error === undefined || exhausted(error)) { throw error; }
    if (isFatalWord(error)) {
      throw ['error', 'map_runtime_error', "function raised 'fatal_error'"];
    }
    var name = part(error, 'name');
    if (part(error, 0) === 'fatal' || (!indexing && name === 'InternalError')) { throw error; }
    var message = part(error, 'message');
    if (name === 'RangeError' && message === 'Maximum call stack size exceeded') {
      throw ['error', 'RangeError', message];
    }
    var id = doc ? part(doc, '_id') : undefined, of = doc ? ' with doc._id ' + described(id) : '';
    tools.raised('function raised exception ' + described(error) + of, error, id, false);
  }

  // JSON text, or a list with the exception that writing it raised: the other functions run before
  // that counts.
  function text(list) {
    try { return stringify(list); } catch (error) { return bare([error]); }
  }

  // The same of rows whose values stand one after the other.
  function written(values) {
    var list = bare([]), columns = width();
    for (var i = 0; i < values.length; i += columns) {
      var row = values[i];
      if (columns === 2) { row = bare([row, values[i + 1]]); }
      if (columns === 3) { row = bare([row, values[i + 1], values[i + 2] || {}]); }
      append(list, row);
    }
    return text(list);
  }

  // Answers the rows, or the parts of many.
  function run(call, doc, forSearch) {
    if (!reading && typeof doc === 'object' && doc !== null) { freezeDeeply(doc); }
    indexing = forSearch;
    rows = bare([]);
    count = 0;
    parts = null;
    var value;
    try { value = call(doc); } catch (error) {
      // There may be no room left for anything else.
      rows = bare([]);
      count = 0;
      parts = null;
      failed(error, doc);
      return rows;
    }
    // What a map function returns is not used.
    if (value !== undefined && !forSearch) { returned(value); }
    if (!parts) { return rows; }
    append(parts, rows);
    return { __proto__: null, parts: parts };
  }

  function result(call, names, values, again) {
    var value;
    try { value = call(names, values, again); } catch (error) {
      failed(error, undefined);
      return '[null]';
    }
    if (typeof value === 'object') { returned(value); }
    return text(bare([value]));
  }

  return {
    __proto__: null,
    written: written,
    map: function (call, doc) { return run(call, doc, false); },
    index: function (call, doc) { return run(call, doc, true); },
    // Keys and values in a list each.
    lists: function (call, names, values) { return result(call, names, values, false); },
    reduce: function (call, pairs) {
      var names = [], values = [];
      for (var i = 0; i < pairs.length; i++) {
        if (!isArray(pairs[i])) {
          throw ['error', 'query_protocol_error', 'reduce: row ' + i + ' is not [[key, id], value]'];
        }
        names[i] = pairs[i][0];
        values[i] = pairs[i][1];
      }
      return result(call, names, values, false);
    },
    rereduce: function (call, values) { return result(call, null, values, true); }
  };
})
