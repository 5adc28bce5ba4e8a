//! Tests of ownership: single events on one daemon, and a model of several with one database.

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
