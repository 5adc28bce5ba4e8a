// Map, index and reduce functions of views. Evaluates to a function of the tools and of the kind of
// realm ("map", "nouveau" or "reduce"), which answers what the server calls. A function that only
// reads its document cannot tell whether that is frozen, and gets it as it is.
(function (tools, kind, reading) {
  var bare = tools.bare, append = tools.append, plain = tools.plain, stringify = tools.stringify;
  var freeze = tools.freeze, keys = tools.keys, text = tools.text;
  var rows = bare([]), fields = bare([]), count = 0;

  tools.define('emit', function emit(key, value) {
    rows[count++] = bare([key, typeof value === 'object' ? plain(value) : value]);
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
      throw wrong('options must be a object not ' + typeof options);
    }
    append(fields, bare([name, value, options || {}]));
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
        throw wrong('type of value must be a string or number not ' + actual);
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
    append(fields, field);
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

  // An exception of a user function: a few end the command, the others are logged.
  function failed(error, doc, indexing) {
    if (error == 'fatal_error') {
      throw ['error', 'map_runtime_error', "function raised 'fatal_error'"];
    }
    if (error[0] === 'fatal' || (!indexing && error.name === 'InternalError')) { throw error; }
    if (error.name === 'RangeError' && error.message === 'Maximum call stack size exceeded') {
      throw ['error', 'RangeError', error.message];
    }
    var of = doc ? ' with doc._id ' + doc._id : '';
    tools.write('function raised exception ' + text(error) + of);
  }

  // JSON text, or a list with the exception that writing it raised: the other functions run before
  // that counts.
  function written(list) {
    try { return stringify(list); } catch (error) { return bare([error]); }
  }

  function run(call, doc, indexing) {
    if (!reading && typeof doc === 'object' && doc !== null) { freezeDeeply(doc); }
    rows = bare([]);
    fields = bare([]);
    count = 0;
    try { call(doc); } catch (error) {
      failed(error, doc, indexing);
      return bare([]);
    }
    return indexing ? fields : rows;
  }

  function result(call, names, values, again) {
    var value;
    try { value = call(names, values, again); } catch (error) {
      failed(error, undefined, false);
      return '[null]';
    }
    return written(bare([value]));
  }

  return {
    __proto__: null,
    written: written,
    map: function (call, doc) { return run(call, doc, false); },
    index: function (call, doc) { return run(call, doc, true); },
    reduce: function (call, pairs) {
      var names = [], values = [];
      for (var i = 0; i < pairs.length; i++) {
        names[i] = pairs[i][0];
        values[i] = pairs[i][1];
      }
      return result(call, names, values, false);
    },
    rereduce: function (call, values) { return result(call, null, values, true); }
  };
})
