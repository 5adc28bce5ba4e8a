//! Writes the rows of a document as JSON text.
//!
//! SUMMARY   [`write_rows`] writes rows of plain values without the engine: its `JSON.stringify`, which makes a
//!           string of every value, takes a third of a map function's time.
//! PROMISES  Writes the same text as `JSON.stringify`, or leaves the rows to the engine: those with a `toJSON`, a
//!           function, a symbol, a BigInt, deep nesting, a long text, or anything that raises an exception.
//! LIMITS    If rows are left to the engine midway, getters and `toJSON` inside objects already written are called
//!           again.

use std::fmt::Write;

use rquickjs::atom::PredefinedAtom;
use rquickjs::{Array, Object, Type, Value};

use super::text::quote;

/// Maximum nesting written here.
const DEPTH_MAX: usize = 8;

/// Maximum number of elements of a list written here: a sparse list may have billions.
const ELEMENTS_MAX: f64 = 100_000.0;

/// Maximum length of a document's rows written here, in bytes: longer ones are left to the engine, whose memory is
/// limited.
const TEXT_BYTES_MAX: usize = 8 << 20;

/// Maximum length of a string escaped here, in bytes: escapes may make it six times as long.
const QUOTED_BYTES_MAX: usize = 64 << 10;

/// Maximum number of values of a document's rows.
const VALUES_MAX: f64 = 3.0 * ELEMENTS_MAX;

/// Maximum digits of a fraction written here. One with more may lie exactly between two shortest decimal forms:
/// JavaScript takes the even one, Rust the greater.
const DIGITS_MAX: usize = 15;

/// Appends rows, separated by commas. `values` is a list made by the prelude, without prototype, with `columns`
/// values for each row. `false`: nothing was appended, and the engine must write them.
pub(super) fn write_rows(values: &Array<'_>, columns: usize, text: &mut String) -> bool {
    let start = text.len();
    let mut writer = Writer {
        text,
        limit: start + TEXT_BYTES_MAX,
    };
    let is_written = writer.rows(values, columns).is_some();
    if !is_written {
        text.truncate(start);
        // The engine will raise the exception again.
        values.ctx().catch();
    }
    is_written
}

/// Like [`write_rows`], into a string of the engine; `None` if the engine must write the rows, or if a value can
/// still change.
pub(super) fn packed<'js>(
    values: Array<'js>,
    columns: usize,
) -> rquickjs::Result<Option<rquickjs::String<'js>>> {
    let mut text = String::new();
    let is_packed = values
        .iter()
        .all(|value| value.is_ok_and(|value| is_fixed(&value)))
        && write_rows(&values, columns, &mut text);
    is_packed
        .then(|| rquickjs::String::from_str(values.ctx().clone(), &text))
        .transpose()
}

/// Whether a value is a primitive that can be written here.
fn is_fixed(value: &Value<'_>) -> bool {
    matches!(
        value.type_of(),
        Type::Null | Type::Undefined | Type::Bool | Type::Int | Type::Float | Type::String
    )
}

struct Writer<'t> {
    text: &'t mut String,
    /// Maximum length of the text.
    limit: usize,
}

/// `None`: the engine must write the rows.
type Written = Option<()>;

impl Writer<'_> {
    fn rows(&mut self, values: &Array<'_>, columns: usize) -> Written {
        for index in 0..length(values, VALUES_MAX)? {
            self.check_room(0)?;
            let column = index % columns;
            if index > 0 {
                self.text.push(',');
            }
            if column == 0 && columns > 1 {
                self.text.push('[');
            }
            let value: Value<'_> = values.get(index).ok()?;
            // The options of an indexed field are optional.
            if column == 2 && value.is_undefined() {
                self.text.push_str("{}")
            } else {
                self.value(&value, 1)?
            }
            if column + 1 == columns && columns > 1 {
                self.text.push(']');
            }
        }
        self.check_room(0)
    }

    /// Checks that a string of this length fits.
    fn check_room(&self, bytes: usize) -> Written {
        (self.text.len() + bytes <= self.limit).then_some(())
    }

    fn elements(&mut self, list: &Array<'_>, depth: usize) -> Written {
        if depth > DEPTH_MAX {
            return None;
        }
        let count = length(list, ELEMENTS_MAX)?;
        self.text.push('[');
        for index in 0..count {
            if index > 0 {
                self.text.push(',');
            }
            self.check_room(0)?;
            self.value(&list.get(index).ok()?, depth)?;
        }
        self.text.push(']');
        self.check_room(0)
    }

    fn value(&mut self, value: &Value<'_>, depth: usize) -> Written {
        match value.type_of() {
            // In a list, undefined becomes null.
            Type::Null | Type::Undefined => self.text.push_str("null"),
            Type::Bool => self
                .text
                .push_str(if value.as_bool()? { "true" } else { "false" }),
            Type::Int => write!(self.text, "{}", value.as_int()?).ok()?,
            Type::Float => self.number(value)?,
            Type::String => {
                let string = value.as_string()?.clone().to_cstring().ok()?;
                let bytes: &[u8] = string.as_ref();
                self.check_room(bytes.len())?;
                match std::str::from_utf8(bytes) {
                    Ok(string) if !string.bytes().any(needs_escape) => {
                        self.text.extend(["\"", string, "\""]);
                    }
                    Ok(string) if string.len() <= QUOTED_BYTES_MAX => {
                        self.text.push_str(&quote(string));
                    }
                    // A long string, or half a surrogate pair.
                    _ => self.ask(value)?,
                }
            }
            Type::Array if is_plain(value.as_object()?) => {
                self.elements(value.as_array()?, depth + 1)?;
            }
            Type::Object if is_plain(value.as_object()?) => self.ask(value)?,
            _ => return None,
        }
        Some(())
    }

    /// From a millionth up to 10^21 both JavaScript and Rust write the shortest digits without an exponent: the same
    /// digits for integers, and for fractions of at most [`DIGITS_MAX`].
    fn number(&mut self, value: &Value<'_>) -> Written {
        let number = value.as_float()?;
        if !number.is_finite() {
            self.text.push_str("null");
            return Some(());
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is only compared")]
        let whole = number as i32;
        // Most numbers are small integers, which are written much faster as such. Zero has no sign.
        if f64::from(whole) == number {
            return write!(self.text, "{whole}").ok();
        }
        if (1e-6..1e21).contains(&number.abs()) {
            let begin = self.text.len();
            write!(self.text, "{number}").ok()?;
            let digits = self.text[begin..].bytes().filter(u8::is_ascii_digit);
            if number.fract() == 0.0 || digits.count() <= DIGITS_MAX {
                return Some(());
            }
            self.text.truncate(begin);
        }
        self.ask(value)
    }

    /// Lets the engine write this value.
    fn ask<'js>(&mut self, value: &Value<'js>) -> Written {
        let text = value
            .ctx()
            .json_stringify(value.clone())
            .ok()??
            .to_cstring()
            .ok()?;
        self.check_room(text.len())?;
        self.text.push_str(text.as_str());
        Some(())
    }
}

/// Returns the number of a list's elements; `None` if too many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a length is a small whole number here"
)]
fn length(list: &Array<'_>, most: f64) -> Option<usize> {
    let count: f64 = list.as_object().get(PredefinedAtom::Length).ok()?;
    (count <= most).then_some(count as usize)
}

/// Whether an object has no `toJSON`.
fn is_plain(object: &Object<'_>) -> bool {
    object
        .get::<_, Value<'_>>("toJSON")
        .is_ok_and(|to_json| to_json.is_undefined())
}

fn needs_escape(byte: u8) -> bool {
    byte < b' ' || matches!(byte, b'"' | b'\\')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    use rquickjs::{Context, Ctx, Runtime};

    use super::*;

    /// The text of a list of these elements, written here and by the engine.
    fn written(ctx: &Ctx<'_>, elements: &str) -> (Option<String>, String) {
        let list = format!("Object.setPrototypeOf([{elements}], null)");
        let mut text = "before".to_owned();
        let array: Array<'_> = ctx.eval(&*list).unwrap();
        let here = write_rows(&array, 1, &mut text);
        let raised = ctx.catch().type_of();
        assert_eq!(
            raised,
            Type::Uninitialized,
            "{elements}: nothing stays raised"
        );
        if !here {
            assert_eq!(text, "before");
        }
        let engine = format!(
            "(function() {{ try {{ return JSON.stringify({list}) }} catch (error) {{ return '' + error }} }})()"
        );
        let engine = ctx.eval(engine).unwrap();
        let here = here.then(|| format!("[{}]", &text["before".len()..]));
        (here, engine)
    }

    fn with_engine(work: impl FnOnce(Ctx<'_>)) {
        let context = Context::full(&Runtime::new().unwrap()).unwrap();
        context.with(work);
    }

    #[test]
    fn plain_values_are_written_as_the_engine_writes_them() {
        with_engine(|ctx| {
            for elements in [
                "",
                "null, undefined, true, false",
                "0, -0, 1, -7, 2147483647, -2147483648, 2147483648, 9007199254740993",
                "12.25, -0.5, 5.0, 0.1 + 0.2, 1e-6, 123456789012345680000, 1e20, 0.000001234",
                "NaN, Infinity, -Infinity, 1e21, 1e-7, -5e-324, 1.7976931348623157e308",
                "'\\ud800', 'x\\udc00\\ud800'",
                "'', 'a', '\\u00e9 \\u4e2d \\ud83d\\udecb \\u007f \\u2028'",
                "'\"\\\\ \\b\\f\\n\\r\\t \\u0000 \\u001f \\v', 'x'.repeat(1000), 'a' + ['b'].join()",
                "[], [[]], [1, [2, ['x']]], [undefined], [,1]",
                "{}, {a: 1, b: [true], c: undefined, d: function() {}}, {'\\ud800': {x: {}}}",
                "Object.create(null), Object.create({inherited: 1}), new Boolean(false), new Number(3)",
                "Math, /x/",
                "{get a() { return 7 }}, new (class A { constructor() { this.b = 1 } })",
            ] {
                let (here, engine) = written(&ctx, elements);
                assert_eq!(here.as_ref(), Some(&engine), "{elements}");
            }
        });
    }

    #[test]
    fn what_is_in_doubt_is_left_to_the_engine() {
        with_engine(|ctx| {
            for elements in [
                "new Date(0)",
                "new Error('x')",
                "{toJSON: function() { return 1 }}",
                "[1, {toJSON: null}]",
                "Object.assign([1], {toJSON: function(key) { return key }})",
                "{get toJSON() { throw 1 }}",
                "{get a() { throw 1 }}",
                "Object.defineProperty([], 0, {get() { throw 1 }, enumerable: true})",
                "1n",
                "{a: 1n}",
                "Symbol()",
                "function() {}",
                "Object.assign(function() {}, {toJSON() { return 1 }})",
                "class A {}",
                "new Proxy([], {})",
                "new Proxy({}, {})",
                "(function() { var a = []; a[0] = a; return a })()",
                "(function() { var a = {}; a.a = a; return a })()",
                "(function() { var a = []; for (var i = 0; i < 20; i++) a = [a]; return a })()",
                "Object.assign([], {length: 100001})",
                "'x'.repeat(8 << 20)",
                "{a: 'x'.repeat(8 << 20)}",
            ] {
                assert_eq!(written(&ctx, elements).0, None, "{elements}");
            }
        });
    }

    #[test]
    fn values_are_put_together_to_rows() {
        with_engine(|ctx| {
            for (values, columns, expected) in [
                ("", 2, ""),
                ("1, 'a', [2], null", 2, r#"[1,"a"],[[2],null]"#),
                (
                    "'n', 5, undefined, 'm', 'x', {store: 'yes'}",
                    3,
                    r#"["n",5,{}],["m","x",{"store":"yes"}]"#,
                ),
                ("{a: 1}, 7", 1, r#"{"a":1},7"#),
            ] {
                let list = format!("Object.setPrototypeOf([{values}], null)");
                let mut text = String::new();
                assert!(write_rows(&ctx.eval(&*list).unwrap(), columns, &mut text));
                assert_eq!(text, expected);
            }
        });
    }

    #[test]
    fn only_what_cannot_change_any_more_is_packed() {
        with_engine(|ctx| {
            let text_of = |values: &str| {
                let text = packed(ctx.eval(format!("[{values}]")).unwrap(), 2).unwrap();
                text.map(|text| text.to_string().unwrap())
            };
            let text = text_of("'k', 1, 1e21, '\\ud800', undefined, null, true, NaN");
            let expected = r#"["k",1],[1e+21,"\ud800"],[null,null],[true,null]"#;
            assert_eq!(text.as_deref(), Some(expected));
            for value in ["[]", "{}", "new Date(0)", "1n", "Symbol()", "function() {}"] {
                assert_eq!(text_of(&format!("1, {value}")), None, "{value}");
            }
        });
    }

    #[test]
    fn a_prototype_that_was_changed_is_seen() {
        for change in [
            "Array.prototype.toJSON = function() { return 'mine' }",
            "Object.prototype.toJSON = function() { return 'mine' }",
        ] {
            with_engine(|ctx| {
                ctx.eval::<(), _>(change).unwrap();
                let (here, engine) = written(&ctx, "[1]");
                assert_eq!((here, engine.as_str()), (None, "[\"mine\"]"));
            });
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            (-1e22..1e22_f64).prop_map(Into::into),
            (-2e-6..2e-6_f64).prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            let members = proptest::collection::btree_map(any::<String>(), inner.clone(), 0..4);
            prop_oneof![
                proptest::collection::vec(inner, 0..5).prop_map(Into::into),
                members.prop_map(|all| serde_json::Value::Object(all.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn a_number_in_the_middle_between_two_texts_is_written_with_the_even_digit() {
        with_engine(|ctx| {
            for (number, even) in [
                ("-1251137164746983.25", "-1251137164746983.2"),
                ("1251137164746983.75", "1251137164746983.8"),
                ("1125899906842624.25", "1125899906842624.2"),
                ("-647854844207532.25", "-647854844207532.2"),
                ("70368744177664.125", "70368744177664.12"),
                ("8.0000152587890625", "8.000015258789062"),
                ("562949953421312.1", "562949953421312.1"),
                ("1732000000000123", "1732000000000123"),
            ] {
                let (here, engine) = written(&ctx, &format!("[{number}]"));
                assert_eq!(engine, format!("[[{even}]]"));
                assert!(here.is_none_or(|here| here == engine), "{number}");
            }
        });
    }

    #[test]
    fn whatever_a_document_may_hold_is_written_as_the_engine_writes_it() {
        with_engine(|ctx| {
            let is_the_same = |value: serde_json::Value| {
                let text = serde_json::json!([value]).to_string();
                let parsed = ctx.json_parse(text).unwrap();
                let engine = ctx.json_stringify(parsed.clone()).unwrap().unwrap();
                let mut here = String::new();
                if write_rows(parsed.as_array().unwrap(), 1, &mut here) {
                    prop_assert_eq!(format!("[{here}]"), engine.to_string().unwrap());
                }
                Ok(())
            };
            let run = TestRunner::default().run(&json(), is_the_same);
            run.unwrap_or_else(|failed| panic!("{failed}"));
        });
    }
}
