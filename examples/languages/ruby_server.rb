#!/usr/bin/env ruby
# A query server for Ruby: one JSON array a line in, one JSON value a line out. Needs nothing but Ruby.
#
#   [query_servers]
#   ruby = "ruby examples/languages/ruby_server.rb"
#
# A function is a lambda: `->(doc) { emit(doc['type'], 1) }`. It finds emit, index, log, and require('views/lib/NAME'),
# which returns what the module returns. Design documents may have shows, updates, filters, views, rewrites and
# validation; lists are answered with an error. The functions of a process can see each other.
require 'json'

OUTPUT = $stdout.dup
$stdout = $stderr # what functions print is no answer
MISTAKES = [StandardError, ScriptError, SystemStackError].freeze # of functions; anything else ends the server
Forbidden, Unauthorized = Array.new(2) { Class.new(StandardError) } # for functions that validate

class Failure < StandardError # is answered as an error line
  def initialize(*words) = @words = words
  def line = ['error', *@words]
end

def respond(value) = OUTPUT.syswrite("#{JSON.generate(value, max_nesting: 0)}\n")

# What functions see. Modules are texts in a tree: that of a library, or a design document.
class World
  def initialize(tree) = (@tree, @modules, @functions = tree, {}, {})
  def emit(key, value = nil) = @rows << [key, value]
  def index(name, value, options = {}) = @rows << [name, value, options]
  def log(text) = respond(['log', text.is_a?(String) ? text : JSON.generate(text)])
  def require(path) = @modules[path] ||= instance_eval(@tree.dig(*path.split('/')), path)
  def rows(function, doc) = [@rows = [], function.call(doc)].first
  def response(said) = said.is_a?(Hash) ? said : { body: said }

  def compile(source)
    function = instance_eval(source)
    function.is_a?(Proc) ? function : raise('the source is no lambda')
  rescue *MISTAKES => e
    raise Failure.new('compilation_error', e.message)
  end

  def column(function, doc)
    rows(function, doc)
  rescue *MISTAKES => e
    log("function raised exception #{e.message} with doc._id #{doc['_id']}") && []
  end

  def call(path, args) # a function of a design document
    source = @tree.dig(*path) or raise Failure.new('not_found', "missing function #{path.join('/')}")
    run = @functions[path] ||= compile(source)
    case path.first
    when 'shows' then ['resp', response(run.call(*args))]
    when 'updates' then run.call(*args).then { |doc, said| ['up', doc, response(said)] }
    when 'filters' then [true, args[0].map { |doc| run.call(doc, args[1]) ? true : false }]
    when 'views' then [true, args[0].map { |doc| rows(run, doc).any? }]
    when 'rewrites' then run.call(*args).then { |to| ['ok', to.is_a?(Hash) ? to : { path: to, method: args[0]['method'] }] }
    when 'validate_doc_update' then run.call(*args).then { 1 }
    else raise Failure.new('not_supported', "there are no #{path.first} in Ruby")
    end
  rescue Forbidden, Unauthorized => e then { e.class.name.downcase => e.message }
  end
end

functions, views, ddocs = [], World.new({}), {} # a reset keeps the design documents
answer = lambda do |command|
  case command
  in ['reset', *] then (functions, views = [], World.new({})) && true
  in ['add_lib', modules] then (views = World.new('views' => { 'lib' => modules })) && true
  in ['add_fun', source] then (functions << views.compile(source)) && true
  in ['map_doc' | 'index_doc', doc] then functions.map { |function| views.column(function, doc) }
  in ['reduce', sources, rows, *] then [true, sources.map { |it| views.compile(it).call(rows.map(&:first), rows.map(&:last), false) }]
  in ['rereduce', sources, values, *] then [true, sources.map { |it| views.compile(it).call(nil, values, true) }]
  in ['ddoc', 'new', id, ddoc] then (ddocs[id] = World.new(ddoc)) && true
  in ['ddoc', id, path, arguments] if ddocs[id] then ddocs[id].call(path, arguments)
  in [name, *] then ['error', 'unknown_command', "unknown command '#{name}', or invalid arguments"]
  end
rescue Failure => e then e.line
rescue *MISTAKES => e then ['error', 'runtime_error', e.message]
end
$stdin.each_line { |line| respond(answer.call(JSON.parse(line, max_nesting: false))) }
