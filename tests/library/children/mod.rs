//! Query servers that start badly, answer badly, take too long, or end at the wrong moment.

mod ends;
mod output;
mod start;
mod time;
