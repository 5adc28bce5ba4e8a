//! The elements of a list, one by one: a list of millions makes no table of as many.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Gives each element of a list to a function.
pub struct ForEach<F>(pub F);

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for ForEach<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.0)(element);
        }
        Ok(())
    }
}

/// Gives the JSON text of each element of a list to a function.
///
/// # Errors
/// The text is no list.
pub fn for_each<'a>(json: &'a str, mut each: impl FnMut(&'a str)) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(json);
    json.deserialize_seq(ForEach(|element: &'a RawValue| each(element.get())))?;
    json.end()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_gone_through_element_by_element() {
        let mut elements = Vec::new();
        for_each(r#" ["a", [1,2] , 3]"#, |json| elements.push(json)).unwrap();
        assert_eq!(elements, [r#""a""#, "[1,2]", "3"]);
        for wrong in ["{}", "[1", "[1] 2"] {
            assert!(for_each(wrong, |_| ()).is_err(), "{wrong}");
        }
    }
}
