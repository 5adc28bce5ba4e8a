//! Tests of ownership: several daemons and one database in simulated time.

mod daemon;
mod database;
mod histories;
mod judge;
mod sabotage;
mod world;

use std::time::Duration;

use test_support::TestRandom;

use super::event::*;
use super::*;
use sabotage::Sabotage;
