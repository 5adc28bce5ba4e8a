//! Pool limits that follow the machine: below the hard limit while tasks wait for processors or memory.
//!
//! SUMMARY   A [`Governor`] derives a [`Level`] from the machine's [`Reading`]; [`Level::limit`] is then a pool's
//!           limit, between its soft and its hard one.
//! PROMISES  Pure. A level moves quickly down and slowly up, and stays while the pressure is between two thresholds, so
//!           that it does not oscillate. A gauge without a value limits nothing.
//! CALLED    By the actor that samples the gauges; by the manager, for each pool.
//! SOURCE    Pressure stall information of Linux (`/proc/pressure`): the fraction of time in which some task waited.
//!           CouchDB, pooler and Postfix have fixed limits.
//! LIMITS    Other programs may cause the pressure.

use std::fmt;

/// Limits go down while tasks wait for at least this fraction of time, in percent.
pub(crate) const HIGH_PERCENT: f64 = 40.0;

/// Limits go up again below this fraction of time, in percent.
pub(crate) const LOW_PERCENT: f64 = 20.0;

/// Steps between the soft and the hard limit.
pub(crate) const STEPS: u8 = 10;

/// Steps down at each sample with high pressure: faster than up, since an overloaded machine does not recover by
/// itself.
pub(crate) const STEPS_DOWN: u8 = 2;

/// Calm samples in a row for one step up.
pub(crate) const CALM_LOOKS: u8 = 3;

/// Fallback without `/proc/pressure`: memory pressure starts below this percentage of available memory, and rises to
/// 100 % when none is available.
const SCARCE_PERCENT: f64 = 20.0;

/// A sample of the machine: the fraction of time in which some task waits, in percent. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// For a processor.
    pub cpu: Option<f64>,
    /// For memory.
    pub memory: Option<f64>,
}

/// How much of the range between soft and hard limits may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// All of it: the hard limits.
    pub const FULL: Self = Self(STEPS);

    /// Returns a pool's limit: at most the hard limit, and 0 only if that is 0.
    pub fn limit(self, soft: u32, hard: u32) -> u32 {
        let least = soft.clamp(1.min(hard), hard);
        let range = u64::from(hard - least) * u64::from(self.0) / u64::from(STEPS);
        // At most `hard - least`.
        least + u32::try_from(range).unwrap_or(u32::MAX)
    }
}

/// Why a level moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Tasks wait for a processor for this fraction of time.
    Cpu(f64),
    /// Tasks wait for memory.
    Memory(f64),
    /// Pressure was low for several samples in a row.
    Calm,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pressed = |what: &str, percent: &f64| {
            write!(
                f,
                "{what} pressure is {percent:.1} %, at least {HIGH_PERCENT} %"
            )
        };
        match self {
            Self::Cpu(percent) => pressed("cpu", percent),
            Self::Memory(percent) => pressed("memory", percent),
            Self::Calm => write!(f, "pressure was below {LOW_PERCENT} % {CALM_LOOKS} times"),
        }
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::FULL
    }
}

/// Determines the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Governor {
    level: Level,
    /// Calm samples in a row.
    calm: u8,
}

impl Governor {
    /// Returns the current level.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Takes a sample. Returns why the level moved, if it did.
    pub fn look(&mut self, reading: Reading) -> Option<Cause> {
        let percent = |share: Option<f64>| share.filter(|share| share.is_finite()).unwrap_or(0.0);
        let (cpu, memory) = (percent(reading.cpu), percent(reading.memory));
        let cause = if memory >= HIGH_PERCENT {
            Cause::Memory(memory)
        } else if cpu >= HIGH_PERCENT {
            Cause::Cpu(cpu)
        } else if cpu.max(memory) >= LOW_PERCENT {
            self.calm = 0;
            return None;
        } else {
            self.calm += 1;
            if self.calm < CALM_LOOKS {
                return None;
            }
            Cause::Calm
        };
        self.calm = 0;
        let before = self.level;
        self.level = Level(match cause {
            Cause::Calm => (before.0 + 1).min(STEPS),
            Cause::Cpu(_) | Cause::Memory(_) => before.0.saturating_sub(STEPS_DOWN),
        });
        (self.level != before).then_some(cause)
    }
}

/// Parses `/proc/pressure/cpu` or `memory`: the ten-second average of time in which some task waited, in percent.
pub fn stalled(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let average = some
        .split_whitespace()
        .find_map(|word| word.strip_prefix("avg10="))?;
    share(average.parse().ok()?)
}

/// Parses `/proc/loadavg`: the fraction of runnable tasks without a processor, in percent.
pub fn overloaded(text: &str, processors: usize) -> Option<f64> {
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    if !load.is_finite() || load <= 0.0 {
        return share(load);
    }
    share(((load - processors as f64) / load * 100.0).max(0.0))
}

/// Parses `/proc/meminfo`: the scarcity of available memory, in percent.
pub fn scarce(text: &str) -> Option<f64> {
    let size = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (available, total) = (size("MemAvailable:")?, size("MemTotal:")?);
    if total <= 0.0 {
        return None;
    }
    let percent = available / total * 100.0;
    share(((1.0 - percent / SCARCE_PERCENT) * 100.0).max(0.0))
}

/// Values outside of 0 to 100 are invalid.
fn share(percent: f64) -> Option<f64> {
    (0.0..=100.0).contains(&percent).then_some(percent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu(percent: f64) -> Reading {
        Reading {
            cpu: Some(percent),
            memory: None,
        }
    }

    #[test]
    fn pressure_lowers_the_limit_to_the_soft_one_and_calm_raises_it_to_the_hard_one() {
        let mut governor = Governor::default();
        let mut limits = Vec::new();
        for _ in 0..6 {
            governor.look(cpu(70.0));
            limits.push(governor.level().limit(10, 110));
        }
        assert_eq!(limits, [90, 70, 50, 30, 10, 10]);
        let mut looks = 0;
        while governor.level() < Level::FULL {
            governor.look(cpu(1.0));
            looks += 1;
        }
        assert_eq!(looks, usize::from(STEPS) * usize::from(CALM_LOOKS));
        assert_eq!(governor.look(cpu(1.0)), None, "nothing moves at the top");
    }

    #[test]
    fn each_move_says_why() {
        let mut governor = Governor::default();
        let both = Reading {
            cpu: Some(45.0),
            memory: Some(61.25),
        };
        let cause = governor.look(both).map(|cause| cause.to_string());
        assert_eq!(
            cause.as_deref(),
            Some("memory pressure is 61.2 %, at least 40 %")
        );
        assert_eq!(governor.look(cpu(45.0)), Some(Cause::Cpu(45.0)));
        let told: Vec<_> = (0..3).map(|_| governor.look(Reading::default())).collect();
        assert_eq!(told, [None, None, Some(Cause::Calm)]);
    }

    #[test]
    fn gauges_are_parsed_and_invalid_ones_are_none() {
        let psi = "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=99.00 avg60=0.00\n";
        assert_eq!(stalled(psi), Some(12.5));
        for text in [
            "",
            "some",
            "some avg10=x",
            "some avg10=NaN",
            "some avg10=-1",
            "full avg10=1",
        ] {
            assert_eq!(stalled(text), None, "{text}");
        }
        assert_eq!(overloaded("8.00 1.00 1.00 1/100 1", 2), Some(75.0));
        assert_eq!(overloaded("0.50 1.00 1.00 1/100 1", 2), Some(0.0));
        assert_eq!(overloaded("nan 1", 2), None);
        let memory = |available: u32| format!("MemTotal: 1000 kB\nMemAvailable: {available} kB\n");
        assert_eq!(scarce(&memory(500)), Some(0.0));
        assert_eq!(scarce(&memory(100)), Some(50.0));
        assert_eq!(scarce("MemTotal: 0 kB\nMemAvailable: 0 kB\n"), None);
        assert_eq!(scarce("MemTotal: 5 kB\n"), None);
    }

    proptest! {
        #[test]
        fn a_limit_lies_between_the_soft_and_the_hard_one_and_grows_with_the_level(
            soft in 0..300_u32, hard in 0..300_u32
        ) {
            let limits: Vec<u32> = (0..=STEPS).map(|level| Level(level).limit(soft, hard)).collect();
            prop_assert!(limits.is_sorted());
            prop_assert_eq!(limits[0], soft.max(1).min(hard));
            prop_assert_eq!(limits[usize::from(STEPS)], hard);
        }

        #[test]
        fn a_level_moves_stepwise_with_a_cause_and_stays_while_pressure_is_between_the_thresholds(
            readings in prop::collection::vec((prop::option::of(-10.0..120.0_f64), prop::option::of(0.0..100.0_f64)), 0..200)
        ) {
            let mut governor = Governor::default();
            for (cpu, memory) in readings {
                let before = governor.level();
                let cause = governor.look(Reading { cpu, memory });
                let now = governor.level();
                let highest = cpu.unwrap_or(0.0).max(memory.unwrap_or(0.0));
                prop_assert_eq!(cause.is_some(), now != before);
                prop_assert!(now <= Level::FULL);
                if highest >= HIGH_PERCENT {
                    prop_assert_eq!(now, Level(before.0.saturating_sub(STEPS_DOWN)));
                } else if highest >= LOW_PERCENT {
                    prop_assert_eq!(now, before);
                } else {
                    prop_assert!(now.0 == before.0 || now.0 == before.0 + 1);
                }
            }
        }
    }
}
