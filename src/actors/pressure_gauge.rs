//! PressureGauge: measures pressure on the machine, and reports to the manager how much its pools may use.
//!
//! SUMMARY   While it is switched on, reads the machine's gauges at an interval; [`Governor`] decides, and the manager
//!           gets [`SetLevel`].
//! PROMISES  Files are read on a blocking thread, one reading at a time. Every level is sent, even an unchanged one,
//!           so that a restarted manager gets it. While the gauge is switched off, it sets no timer, and all limits
//!           are the hard limits.
//! SOURCE    See [`policy::pressure`].

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, o};

use crate::ConfigWatch;
use crate::actors::changes;
use crate::actors::proc_manager::ProcManager;
use crate::logging::RepeatLimiter;
use crate::messages::pools::SetLevel;
use crate::otp::{PidGuard, RegisteredName, Stop, Tell};
use crate::warn_repeating;
use policy::pressure::{Governor, Level, Reading, overloaded, scarce, stalled};

/// Reads the gauges. May block.
pub(crate) type Gauges = Arc<dyn Fn() -> Reading + Send + Sync>;

/// Returns a function that reads the machine's gauges below `proc`, the directory of Linux's `/proc`: pressure stall
/// information, or if there is none, the load and available memory.
pub fn gauges(proc: PathBuf) -> Gauges {
    Arc::new(move || {
        let read = |name: &str| fs::read_to_string(proc.join(name)).ok();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let load = || overloaded(&read("loadavg")?, processors);
        let memory = || scarce(&read("meminfo")?);
        let stall = |name: &str| stalled(&read(name)?);
        Reading {
            cpu: stall("pressure/cpu").or_else(load),
            memory: stall("pressure/memory").or_else(memory),
        }
    })
}

/// The gauge's dependencies.
#[derive(Clone)]
pub struct PressureOptions {
    /// Reads the gauges.
    pub gauges: Gauges,
    /// The actor to notify.
    pub manager: RegisteredName<ProcManager>,
    /// The configuration in force.
    pub config: ConfigWatch,
    /// The log.
    pub log: Logger,
}

/// Reads the gauges at an interval.
pub struct PressureGauge {
    options: PressureOptions,
    /// Decides, while it is switched on.
    governor: Option<Governor>,
    /// The timer of the next reading, or the current reading.
    looking: Option<SpawnHandle>,
    /// Limits the warning that the gauges cannot be read.
    silent: RepeatLimiter,
    log: Logger,
    pid_guard: PidGuard,
}

impl PressureGauge {
    /// Creates the actor; it reads nothing until it is started.
    pub fn new(options: PressureOptions, pid_guard: PidGuard) -> Self {
        Self {
            log: options.log.new(o!("component" => "pressure_gauge")),
            options,
            governor: None,
            looking: None,
            silent: RepeatLimiter::default(),
            pid_guard,
        }
    }

    /// Starts, continues or ends the readings, as configured now.
    fn follow(&mut self, ctx: &mut Context<Self>) {
        let config = Arc::clone(&self.options.config.borrow_and_update());
        if let Some(looking) = self.looking.take() {
            ctx.cancel_future(looking);
        }
        if config.query_server_config.limit_follows_pressure {
            self.governor.get_or_insert_default();
            self.look_later(ctx);
        } else if self.governor.take().is_some() {
            self.set_level(Level::FULL, "limit_follows_pressure is off".to_owned());
        }
    }

    fn look_later(&mut self, ctx: &mut Context<Self>) {
        let config = Arc::clone(&self.options.config.borrow());
        let interval = config.query_server_config.pressure_interval;
        self.looking = Some(ctx.run_later(interval, Self::look));
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let gauges = Arc::clone(&self.options.gauges);
        let reading = blocking::run("gauges", move || gauges()).into_actor(self);
        let looked = reading.map(|reading, gauge, ctx| {
            // A failed reading counts as an empty one.
            gauge.take(reading.unwrap_or_default());
            gauge.look_later(ctx);
        });
        self.looking = Some(ctx.spawn(looked));
    }

    fn take(&mut self, reading: Reading) {
        if reading == Reading::default() {
            warn_repeating!(self.log, self.silent,
                "cannot read the machine's pressure";
                "effect" => "the hard limits apply",
                "remedy" => "set limit_follows_pressure = false, or let the service read /proc");
        }
        let Some(governor) = &mut self.governor else {
            return;
        };
        let cause = governor.look(reading);
        let level = governor.level();
        // Without a cause the level is unchanged: only a restarted manager does not have it yet.
        let unchanged = || "the manager was started again".to_owned();
        let because = cause.map_or_else(unchanged, |cause| cause.to_string());
        self.set_level(level, because);
    }

    fn set_level(&self, level: Level, because: String) {
        self.options.manager.tell(SetLevel { level, because });
    }
}

impl Actor for PressureGauge {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        changes::follow(self.options.config.clone(), ctx, Self::follow);
        self.follow(ctx);
    }
}

impl Handler<Stop> for PressureGauge {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.pid_guard.shut_down(ctx);
    }
}
