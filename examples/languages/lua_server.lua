#!/usr/bin/env lua5.4
-- A query server for Lua: one JSON array a line in, one JSON value a line out. Needs dkjson, which keeps null, empty
-- arrays and integers apart from nil, {} and 1.0 (Debian: lua5.4 and lua-dkjson).
--
--   [query_servers]
--   lua = "lua5.4 examples/languages/lua_server.lua"
--
-- A function is `function(doc) emit(doc.type, 1) end`. It finds emit, index, log, null, array and, after add_lib,
-- require('views/lib/NAME'), which returns what the module returns. There are no design documents. Each function has
-- globals of its own; the standard library is shared, so run functions of people that you trust.
local json = require("dkjson")
local functions, modules, rows = {}, {}, nil
local function array(values) return setmetatable(values, { __jsontype = "array" }) end
local function respond(value) io.write(json.encode(value), "\n"):flush() end
local function orNull(value) if value == nil then return json.null end return value end

local function each(values, change)
  local changed = array({})
  for at, value in ipairs(values) do changed[at] = orNull(change(value)) end
  return changed
end

-- What functions see beside the standard library. `print` is for the log, as output is for answers.
local seen = { null = json.null, array = array }
function seen.emit(key, value) rows[#rows + 1] = array({ orNull(key), orNull(value) }) end
function seen.index(name, value, options) rows[#rows + 1] = array({ name, value, options or json.decode("{}") }) end
function seen.log(value) respond({ "log", type(value) == "string" and value or json.encode(value) }) end
seen.print = seen.log

local function evaluate(source, name)
  local globals = setmetatable({}, { __index = function(_, global) return seen[global] or _G[global] end })
  return assert(load(source, "=" .. name, "t", globals))()
end

-- A module is run once, when it is first asked for.
function seen.require(path)
  local module = modules[path:match("^views/lib/(.*)$")] or error("there is no module '" .. path .. "'")
  module.exports = module.exports or evaluate(module.source, path)
  return module.exports
end

local function compile(source)
  local done, made = pcall(evaluate, "return " .. source, "function")
  if done and type(made) == "function" then return made end
  error({ "error", "compilation_error", done and "the source is no function" or made })
end

local function map(doc)
  return each(functions, function(run)
    rows = array({})
    local done, why = pcall(run, doc)
    if done then return rows end
    seen.log("function raised exception " .. tostring(why) .. " with doc._id " .. tostring(doc._id))
    return array({})
  end)
end

local function reduce(sources, keys, values, again)
  return array({ true, each(sources, function(source) return compile(source)(keys, values, again) end) })
end

local commands = { map_doc = map, index_doc = map }
function commands.reset() functions, modules = {}, {} return true end
function commands.add_lib(lib) for name, source in pairs(lib) do modules[name] = { source = source } end return true end
function commands.add_fun(source) functions[#functions + 1] = compile(source) return true end
function commands.rereduce(sources, values) return reduce(sources, json.null, values, true) end
function commands.reduce(sources, given)
  local function column(at) return each(given, function(row) return row[at] end) end
  return reduce(sources, column(1), column(2), false)
end

for line in io.lines() do
  local command = json.decode(line, 1, json.null)
  if type(command) ~= "table" then os.exit(1) end -- the sender has lost step
  local run = commands[command[1]] or function() error({ "error", "unknown_command", "unknown command" }) end
  local done, answer = pcall(run, table.unpack(command, 2))
  respond((done or type(answer) == "table") and answer or { "error", "runtime_error", tostring(answer) })
end
