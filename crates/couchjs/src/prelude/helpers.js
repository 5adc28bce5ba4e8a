// Helper functions of every realm, and small tools that the other preludes share.
// Evaluates to a function of `host`, the native calls, that returns the tools. User code never sees them.
// Saves the built-ins that are needed after user code has run, because user code may replace them.
(function (host) {
  var stringify = JSON.stringify, setPrototype = Object.setPrototypeOf, text = String;
  var page = { __proto__: null, chunks: null, start: null, handlers: null, list: null };

  // Returns the list without a prototype: what user code adds to Array.prototype does not show in it.
  function bare(list) { return setPrototype(list, null); }

  function append(list, item) { list[list.length] = item; }

  // Converts an Error to the object that is emitted or logged for it; returns any other value unchanged.
  function plain(value) {
    if (typeof value === 'object' && value !== null && 'stack' in value && 'name' in value &&
        'message' in value) {
      return { error: value.name, message: value.message };
    }
    return value;
  }

  // Returns a member of a thrown value; undefined if it cannot be read.
  function part(error, name) {
    try { return error[name]; } catch (unreadable) { return undefined; }
  }

  // Returns whether the engine raised this because memory is exhausted. Without room for an exception it raises null.
  function exhausted(error) {
    if (error === null) { return host.full(); }
    if (part(error, 'name') !== 'InternalError') { return false; }
    var message = part(error, 'message');
    return message === '' || message === 'out of memory' || message === 'out of memory in regexp execution';
  }

  // Returns a thrown value as text.
  function described(error) {
    try { return text(error); } catch (failed) { if (exhausted(failed)) { throw failed; } }
    try { return '' + stringify(error); } catch (failed) { if (exhausted(failed)) { throw failed; } }
    return 'an object without a text';
  }

  function write(message) { host.log(stringify(message)); }

  function clear() {
    page.chunks = bare([]);
    page.start = null;
    page.handlers = bare([]);
    page.list = null;
  }
  clear();

  function sum(values) {
    var total = 0;
    for (var i in values) { total += values[i]; }
    return total;
  }
  function words(message) {
    return typeof message === 'string' ? message : '' + stringify(plain(message));
  }
  function log(message) { write(words(message)); }
  function logAll() {
    var line = '';
    for (var i = 0; i < arguments.length; i++) { line += (i ? ' ' : '') + words(arguments[i]); }
    write(line);
  }
  function toJSON(value) { return stringify(value); }
  function start(response) { page.start = response || {}; }
  function send(chunk) { append(page.chunks, chunk.toString()); }
  function provides(key, handler) { append(page.handlers, bare([key, handler])); }
  function registerType(key) {
    if (!host.registerType) { return; }
    var types = bare([]);
    for (var i = 1; i < arguments.length; i++) { append(types, text(arguments[i])); }
    host.registerType(stringify(bare([text(key), types])));
  }
  function getRow() {
    if (!page.list) { throw new Error('getRow is only available in list functions'); }
    return page.list();
  }

  function define(name, value) {
    Object.defineProperty(globalThis, name,
      { value: value, writable: true, enumerable: true, configurable: true });
  }
  define('sum', sum);
  define('log', log);
  define('toJSON', toJSON);
  define('isArray', Array.isArray);
  define('provides', provides);
  define('registerType', registerType);
  define('start', start);
  define('send', send);
  define('getRow', getRow);

  // Defines the console of other JavaScript hosts, which functions in CouchDB lack.
  function addConsole() {
    define('console',
      { log: logAll, info: logAll, debug: logAll, warn: logAll, error: logAll });
  }

  // Logs an exception of a function: a text, the error, the id of the document, and whether the command
  // ends with it.
  function raised(message, error, id, ends) { host.raised(stringify(message), error, id, ends); }

  return {
    __proto__: null, host: host, page: page, clear: clear, bare: bare, append: append, plain: plain,
    addConsole: addConsole, raised: raised, define: define, stringify: stringify, parse: JSON.parse, apply: Reflect.apply,
    evaluate: eval, text: text, part: part, exhausted: exhausted,
    described: described, freeze: Object.freeze, keys: Object.keys, has: Object.hasOwn, isArray: Array.isArray, world: globalThis
  };
})
