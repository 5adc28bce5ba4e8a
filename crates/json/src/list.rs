//! Many JSON texts in two buffers.
//!
//! SUMMARY   [`JsonList`] is an array whose elements are found without parsing; [`JsonListBuilder`] makes one.
//! PROMISES  Each element keeps its text. Memory is allocated and freed in large blocks, however small and many the
//!           elements are.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The elements of an array, each as its text. Serialized as the array.
#[derive(Clone, Debug)]
pub struct JsonList {
    /// Exactly one byte, `[` or `,`, precedes each element.
    array: Box<RawValue>,
    /// The end of each element in it.
    ends: Vec<usize>,
}

impl JsonList {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns an element by its index, from 0.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let before = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.array.get().get(before + 1..end)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        let mut start = 1;
        self.ends.iter().map(move |end| {
            let element = &self.array.get()[start..*end];
            start = end + 1;
            element
        })
    }
}

impl Serialize for JsonList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.array.serialize(to)
    }
}

#[derive(Debug, Default)]
pub struct JsonListBuilder {
    array: String,
    ends: Vec<usize>,
}

impl JsonListBuilder {
    /// Reserves this many bytes for elements and separators.
    pub fn with_room(bytes: usize) -> Self {
        Self {
            array: String::with_capacity(bytes),
            ends: Vec::new(),
        }
    }

    /// Adds an element.
    pub fn push(&mut self, element: &RawValue) {
        self.array
            .push(if self.ends.is_empty() { '[' } else { ',' });
        self.array.push_str(element.get());
        self.ends.push(self.array.len());
    }

    /// Returns the list.
    ///
    /// # Panics
    /// Never: an array of JSON texts is JSON.
    pub fn finish(mut self) -> JsonList {
        if self.ends.is_empty() {
            self.array.push('[');
        }
        self.array.push(']');
        JsonList {
            array: RawValue::from_string(self.array).expect("JSON: an array of JSON texts"),
            ends: self.ends,
        }
    }
}

impl<'a> FromIterator<&'a RawValue> for JsonList {
    fn from_iter<T: IntoIterator<Item = &'a RawValue>>(elements: T) -> Self {
        let mut list = JsonListBuilder::default();
        elements.into_iter().for_each(|element| list.push(element));
        list.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(array: &str) -> JsonList {
        let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap();
        elements.into_iter().collect()
    }

    #[test]
    fn elements_keep_their_text_and_are_found_by_index() {
        let texts = ["{}", "[[1 ],\n\"],[\"]", "1.0", "\"\u{e9},\"", "null"];
        let list = list(&format!(" [ {} ] ", texts.join(" ,\t")));
        assert_eq!(list.len(), texts.len());
        assert_eq!(list.iter().collect::<Vec<_>>(), texts);
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(list.get(index), Some(*text));
        }
        assert_eq!(list.get(texts.len()), None);
        let written = serde_json::to_string(&list).unwrap();
        assert_eq!(written, format!("[{}]", texts.join(",")));
    }

    #[test]
    fn an_empty_list_is_an_empty_array() {
        let list = list(" [ ] ");
        assert!(list.is_empty() && list.iter().next().is_none());
        assert_eq!(list.get(0), None);
        assert_eq!(serde_json::to_string(&list).unwrap(), "[]");
    }
}
