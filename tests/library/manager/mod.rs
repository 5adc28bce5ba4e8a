//! The process manager with real processes: leases, lost clients, reuse and failures.

mod abilities;
mod after_errors;
mod cases;
mod clients_lost;
mod conformance;
mod defects;
mod forgetting;
mod native_language;
mod pressure;
mod prompts_together;
mod reload;
mod reuse;
mod starts;
