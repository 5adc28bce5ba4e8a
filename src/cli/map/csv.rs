//! Rows as CSV.
//!
//! SUMMARY   [`Csv`] quotes as in RFC 4180; lines end in a line feed. Strings are written without JSON's quotes and
//!           escapes, null as an empty field, everything else, and a string with half a surrogate pair, as JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A row in its JSON form; reduced rows have no id.
#[derive(Default, Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

/// Writes lines of CSV.
#[derive(Clone, Copy)]
pub(super) struct Csv {
    /// Whether rows have document ids; reduced rows have none.
    pub has_ids: bool,
}

impl Csv {
    /// Returns the first line.
    pub(super) fn header(self) -> &'static str {
        if self.has_ids {
            "id,key,value\n"
        } else {
            "key,value\n"
        }
    }

    /// Appends the line of a row, which is a JSON object.
    pub(super) fn write(self, row: &[u8], text: &mut Vec<u8>) {
        let Row { id, key, value } = serde_json::from_slice(row).unwrap_or_default();
        let first = usize::from(!self.has_ids);
        for (index, field) in [id, key, value].into_iter().enumerate().skip(first) {
            if index > first {
                text.push(b',');
            }
            text.extend_from_slice(field_of(field).as_bytes());
        }
        text.push(b'\n');
    }
}

fn field_of(json: Option<&RawValue>) -> Cow<'_, str> {
    let json = json.map_or("", RawValue::get);
    let text = serde_json::from_str(json).map_or(Cow::Borrowed(json), Cow::<str>::Owned);
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(has_ids: bool, row: &str) -> String {
        let mut text = Vec::new();
        Csv { has_ids }.write(row.as_bytes(), &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn strings_are_quoted_only_if_necessary_and_other_values_are_json() {
        for (row, expected) in [
            (r#"{"id":"a","key":"b c","value":1.0}"#, "a,b c,1.0\n"),
            (
                r#"{"id":"a,b","key":"say \"ü\"","value":"x\ny"}"#,
                "\"a,b\",\"say \"\"ü\"\"\",\"x\ny\"\n",
            ),
            (
                r#"{"id":"a","key":null,"value":[1,"x"]}"#,
                "a,,\"[1,\"\"x\"\"]\"\n",
            ),
            (r#"{"id":"a","key":true,"value":{}}"#, "a,true,{}\n"),
            (
                r#"{"id":"","key":"\ud800","value":12345678901234567890}"#,
                ",\"\"\"\\ud800\"\"\",12345678901234567890\n",
            ),
        ] {
            assert_eq!(line(true, row), expected);
        }
        assert_eq!(
            line(false, r#"{"key":["x"],"value":2}"#),
            "\"[\"\"x\"\"]\",2\n"
        );
    }
}
