// Removes from the standard objects of every realm what functions must not have. Runs before anything else.
(function () {
  var names = ['normalize', 'localeCompare'];
  for (var i = 0; i < names.length; i++) { delete String.prototype[names[i]]; }
  names = ['Promise', 'DisposableStack', 'AsyncDisposableStack', 'SuppressedError',
    'queueMicrotask'];
  for (i = 0; i < names.length; i++) { delete globalThis[names[i]]; }
  delete Array.fromAsync;

  // JSON.stringify copies raw JSON as it is, even half a surrogate pair, which has no UTF-8.
  delete JSON.rawJSON;
  delete JSON.isRawJSON;

  // The call sites of a stack trace would expose the server's functions.
  Error.prepareStackTrace = function (error, sites) {
    if (sites.length) { delete Object.getPrototypeOf(sites[0]).getFunction; }
  };
  new Error('').stack;
  Error.prepareStackTrace = undefined;
})();
