//! `query`: Mango, inside this program.
//!
//! SUMMARY   The language of index definitions and of selectors that validate documents. Always present: no
//!           configuration disables or replaces it.
//! SOURCE    CouchDB's mango_native_proc.

mod server;

use strum::VariantArray;

use super::native::NativeLanguage;
use crate::actors::language::Language;
use crate::query_server::abilities::Ability;

pub use server::QueryServer;

/// Returns the language. It has every ability except libraries, which an index definition cannot require. Selectors
/// and index definitions only read the document.
pub fn query() -> impl Language {
    let present: Vec<Ability> = Ability::VARIANTS
        .iter()
        .copied()
        .filter(|it| *it != Ability::AddLib)
        .collect();
    NativeLanguage::new(|context| QueryServer::new(context.log.clone()))
        .with_abilities(&present)
        .isolating_functions()
}
