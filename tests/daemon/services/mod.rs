//! Services: sockets whose connections are each lent one process.

mod backlog;
mod change;
mod connection;
mod deadlines;
mod ends;
mod harness;
mod held_max;
mod load;
mod logbook;
mod mistakes;
mod pools;
mod pressure;
mod queue;
mod status;
mod stress;
mod trouble;
