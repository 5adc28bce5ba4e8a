// An express-pouchdb server in memory on a port of its own, which it prints. Its argument is a folder
// for its log.
'use strict';

const path = require('path');
const express = require('express');

const PouchDB = require('pouchdb-core')
  .plugin(require('pouchdb-adapter-memory'))
  .plugin(require('pouchdb-mapreduce'))
  .plugin(require('pouchdb-replication'))
  .defaults({ adapter: 'memory' });

const app = express();
app.use('/', require('express-pouchdb')(PouchDB, {
  mode: 'minimumForPouchDB',
  inMemoryConfig: true,
  logPath: path.join(process.argv[2], 'log.txt'),
}));
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));

// The end of the input is the end of the test.
process.stdin.on('end', () => process.exit(0)).resume();
