// An express-pouchdb server in memory on a port of its own, which it prints.
'use strict';

const fs = require('fs');
const os = require('os');
const path = require('path');
const express = require('express');

// What the server logs is of no interest, and must not lie about.
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'settee-pouch-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

const PouchDB = require('pouchdb-core')
  .plugin(require('pouchdb-adapter-memory'))
  .plugin(require('pouchdb-mapreduce'))
  .plugin(require('pouchdb-replication'))
  .defaults({ adapter: 'memory' });

const app = express();
app.use('/', require('express-pouchdb')(PouchDB, {
  mode: 'minimumForPouchDB',
  inMemoryConfig: true,
  logPath: path.join(folder, 'log.txt'),
}));
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));

// The end of the input is the end of the test.
process.stdin.on('end', () => process.exit(0)).resume();
