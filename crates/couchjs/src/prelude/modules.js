// CommonJS `require` for one tree of modules: a design document, or the library of a view.
// Evaluates to a function of the tools and the root of the tree or, if the root is null, of a library
// as JSON text, which is parsed when it is first needed.
(function (tools, root, library) {
  var stringify = tools.stringify, evaluate = tools.evaluate, apply = tools.apply, has = tools.has;
  var described = tools.described, exhausted = tools.exhausted, host = tools.host;

  // Records an Error for the stack: the array that is thrown has none.
  function wrong(reason) {
    host.moduleBroken(reason, '', new Error(reason));
    return ['error', 'invalid_require_path', reason];
  }

  // Takes one step along a path. A place is {current, parent, id}; the root has neither parent nor id.
  function step(name, place) {
    if (name === '..') {
      if (!(place.parent && place.parent.parent)) {
        throw wrong('Object has no parent ' + stringify(place.current));
      }
      var cut = place.id.lastIndexOf('/');
      var up = place.parent;
      return { current: up.current, parent: up.parent, id: place.id.slice(0, cut) };
    }
    if (name === '.') {
      if (!place.parent) { throw wrong('Object has no parent ' + stringify(place.current)); }
      return { current: place.current, parent: place.parent, id: place.id };
    }
    var found = place.current[name];
    if (found === undefined) {
      throw wrong('Object has no property "' + name + '". ' + stringify(place.current));
    }
    return { current: found, parent: place, id: place.id ? place.id + '/' + name : name };
  }

  function load(path, from) {
    if (!root) { root = { views: { lib: tools.parse(library) }, _module_cache: {} }; }
    var names = path.split('/');
    var relative = names[0] === '.' || names[0] === '..';
    var place = relative ? from : { current: root };
    for (var i = 0; i < names.length; i++) { place = step(names[i], place); }
    if (typeof place.current !== 'string') {
      throw wrong('Must require a JavaScript string, not: ' + typeof place.current);
    }
    var cache = root._module_cache;
    if (!has(cache, place.id)) {
      // A cyclic require gets this object, and it stays if the module fails.
      cache[place.id] = {};
      var module = { current: place.current, parent: place.parent, id: place.id, exports: {} };
      try {
        var body = evaluated(place.current, place.id);
        var require = function require(name) { return load(name, place.parent); };
        apply(body, tools.world, [module, module.exports, require]);
      } catch (error) {
        if (exhausted(error)) { throw error; }
        var reason = "Module require('" + path + "') raised error " + described(error);
        throw broken(reason, place.current, error);
      }
      cache[place.id] = module.exports;
    }
    return cache[place.id];
  }

  tools.define('require', function require(path) { return load(path, undefined); });

  // Evaluates a module as a file with its name; a long module has no file of its own.
  function evaluated(source, id) {
    var before = '(function (module, exports, require) { ', text = before + source + '\n });';
    return host.evaluate(text, host.moduleFile(id, before, source)) || evaluate(text);
  }

  function broken(reason, source, error) {
    host.moduleBroken(reason, source, error);
    return ['error', 'compilation_error', reason];
  }
})
