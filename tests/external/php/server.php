<?php
// A query server for views in PHP: it reads a JSON array per line and writes a JSON value per line. A function is a
// closure, `function ($doc) { emit($doc->type, 1); }`, which may call `emit` and `logs`.

const FLAGS = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_THROW_ON_ERROR;
$functions = $rows = [];

function respond($value) { fwrite(STDOUT, json_encode($value, FLAGS) . "\n"); }
function logs($value) { respond(['log', is_string($value) ? $value : json_encode($value, FLAGS)]); }
function emit($key, $value) { $GLOBALS['rows'][] = [$key, $value]; }

function compiled($source) {
    $function = eval("return $source;");
    return $function instanceof Closure ? $function : throw new TypeError('the source is not a function');
}

function mapped($function, $doc) {
    $GLOBALS['rows'] = [];
    try {
        $function($doc);
        return $GLOBALS['rows'];
    } catch (Throwable $error) {
        logs("function raised exception {$error->getMessage()} with doc._id {$doc->_id}");
        return [];
    }
}

function reduced($sources, ...$arguments) {
    return [true, array_map(fn ($source) => compiled($source)(...$arguments), $sources)];
}

function answer($name, $arguments) {
    global $functions;
    switch ($name) {
        case 'reset':
            $functions = [];
            return true;
        case 'add_fun':
            $functions[] = compiled($arguments[0]);
            return true;
        case 'map_doc':
            return array_map(fn ($function) => mapped($function, $arguments[0]), $functions);
        case 'reduce':
            [$sources, $rows] = $arguments;
            return reduced($sources, array_column($rows, 0), array_column($rows, 1), false);
        case 'rereduce':
            return reduced($arguments[0], null, $arguments[1], true);
        default:
            return ['error', 'unknown_command', "unknown command '$name'"];
    }
}

while (($line = fgets(STDIN)) !== false) {
    [$name, $arguments] = [null, json_decode($line)];
    if (!is_array($arguments)) {
        exit(1); // The sender does not follow the protocol.
    }
    $name = array_shift($arguments);
    try {
        respond(answer($name, $arguments));
    } catch (Throwable $error) {
        respond(['error', 'compilation_error', $error->getMessage()]);
    }
}
