use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

fn parser_accepts(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[test]
fn values_of_every_type_are_skipped() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-12.50",
        "1e5",
        "1.5E-07",
        "9e+99999",
        "\"\"",
        "\"a\"",
        "\"12345678\"",
        "\"1234567\\\"89\"",
        "\"\\u00e9\\ud800\\\\\"",
        "\"\u{e9}\u{1f6cb}\u{7f}\"",
        "[]",
        "{}",
        "[ ]",
        "{\t}",
        "[1,[],{},\"]\"]",
        " {\"a\" : [ 1 , 2 ] ,\r\n\"\" : { \"b\":{} } } ",
        "{\"a\":1,\"a\":2}",
    ] {
        assert!(parser_accepts(text) && Cursor::is_value(text), "{text}");
    }
}

#[test]
fn malformed_values_are_not_skipped() {
    for text in [
        "",
        " ",
        "nul",
        "nulls",
        "True",
        "-",
        "01",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "0x1",
        "\"",
        "\"a",
        "\"a\\\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12\"",
        "\"\\",
        "\"a\tb\"",
        "\"12345678\n\"",
        "\"\0\"",
        "\"\u{1f}1234567\"",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{",
        "}",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1]",
        "{,}",
        "1 2",
        "[] []",
        "\u{feff}1",
        "\u{a0}1",
        "'a'",
        "NaN",
        "[1]]",
    ] {
        assert!(!parser_accepts(text) && !Cursor::is_value(text), "{text:?}");
    }
}

#[test]
fn depth_has_no_limit_and_brackets_must_match_at_every_depth() {
    for depth in [1, 63, 64, 65, 127, 128, 129, 100_000] {
        let kinds = || (0..depth).map(|level| level % 3 == 0);
        let opening = |is_object| if is_object { "{\"a\":" } else { "[" };
        let closing = |is_object| if is_object { '}' } else { ']' };
        let head: String = kinds().map(opening).collect();
        let tail: String = kinds().rev().map(closing).collect();
        assert!(Cursor::is_value(&format!("{head}1{tail}")), "{depth}");
        assert!(
            !Cursor::is_value(&format!("{head}1{}", &tail[1..])),
            "{depth}"
        );
        for wrong in [0, depth / 2, depth - 1] {
            let other = if &tail[wrong..=wrong] == "]" {
                "}"
            } else {
                "]"
            };
            let tail = format!("{}{other}{}", &tail[..wrong], &tail[wrong + 1..]);
            assert!(!Cursor::is_value(&format!("{head}1{tail}")), "{depth}");
        }
    }
}

#[test]
fn parts_are_found_at_their_offsets() {
    let text = " { \"a\" : [1, {}] , \"\\u0062\":\"c\"} ";
    let mut scan = Cursor::of(text.as_bytes());
    assert_eq!(scan.open(b'['), None);
    assert_eq!(scan.open(b'{'), Some(true));
    let mut parts = Vec::new();
    loop {
        let name = scan.name().unwrap();
        parts.push(&text[name]);
        parts.push(&text[scan.value().unwrap()]);
        if !scan.goes_on(b'{').unwrap() {
            break;
        }
    }
    assert_eq!(parts, ["\"a\"", "[1, {}]", "\"\\u0062\"", "\"c\""]);
    assert!(scan.is_at_end());
}

#[test]
fn a_walk_visits_all_parts_of_a_value_in_order() {
    let text = r#" {"a":[1, -2.5e3],"\u0062":{},"c":[[null],true,"x",false]} 7"#;
    let mut parts = String::new();
    let mut cursor = Cursor::of(text.as_bytes());
    cursor.walk(|token| match token {
        Token::Object => parts.push('{'),
        Token::Array => parts.push('['),
        Token::End => parts.push('.'),
        Token::Name(place) => parts.extend(["<", &text[place], ">"]),
        Token::String(place) | Token::Number(place) => parts.extend([&text[place], " "]),
        Token::Null => parts.push('n'),
        Token::False => parts.push('f'),
        Token::True => parts.push('t'),
    });
    let expected = r#"{<"a">[1 -2.5e3 .<"\u0062">{.<"c">[[n.t"x" f.."#;
    assert_eq!(parts, expected);
    assert_eq!(cursor.peek(), Some(b'7'));
}

#[test]
fn objects_and_arrays_are_split_into_their_parts() {
    let text = r#"{ "a" : 1 ,"b":[{"x":"]}"},2], "c":"\"," ,"d":{} }"#;
    let members: Vec<_> = Members::of(text).collect();
    let expected = [
        ("\"a\"", "1"),
        ("\"b\"", r#"[{"x":"]}"},2]"#),
        ("\"c\"", r#""\",""#),
        ("\"d\"", "{}"),
    ];
    assert_eq!(members, expected);
    let elements: Vec<_> = Elements::of("[ 1,-2.5e3 ,[ ],null]").collect();
    assert_eq!(elements, ["1", "-2.5e3", "[ ]", "null"]);
    for empty in ["[]", "[ \n]", "{}", "1"] {
        assert_eq!(Elements::of(empty).count() + Members::of(empty).count(), 0);
    }
}

#[test]
fn a_list_is_walked_element_by_element() {
    let mut elements = Elements::of(r#" ["a", [1,2] , 3] "#);
    let first: Vec<_> = elements.by_ref().take(2).collect();
    assert_eq!(first, [r#""a""#, "[1,2]"]);
    assert!(elements.is_list());
    assert!(Elements::of("[]").is_list());
    for wrong in ["", "{}", "[1", "[1,]", "[1] 2", "[1,2}"] {
        assert!(!Elements::of(wrong).is_list(), "{wrong}");
    }
}

#[test]
fn invalid_json_ends_the_walk() {
    for text in [
        "",
        "{",
        "[",
        "{\"a",
        "[1,[2",
        "[1,nul",
        "{\"a\":{\"b\"",
        "[\"\\",
        "x",
        "}",
    ] {
        let (mut members, mut elements) = (Members::of(text), Elements::of(text));
        let parts = members.by_ref().count() + elements.by_ref().count();
        assert!(parts <= 1, "{text}");
        assert!(members.next().is_none() && elements.next().is_none());
    }
}

/// JSON, and strings that are almost JSON.
fn texts() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
        any::<i32>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        "\"[a\\\\\"u0 \t\u{e9}]{0,20}\"",
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let members = proptest::collection::vec((any::<String>(), inner.clone()), 0..5);
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(|all| format!("[{}]", all.join(" ,"))),
            members.prop_map(|all| {
                let member = |(name, value): (String, String)| {
                    format!("{}: {value}", serde_json::json!(name))
                };
                let all: Vec<String> = all.into_iter().map(member).collect();
                format!("{{{} }}", all.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn the_cursor_accepts_what_the_parser_accepts(text in texts()) {
        prop_assert_eq!(Cursor::is_value(&text), parser_accepts(&text));
        let (mut shown, mut shown_of_valid) = (Vec::new(), Vec::new());
        let walked = Cursor::of(text.as_bytes()).walk(|token| shown.push(token));
        // The unchecked walk must not panic on any string.
        let _ = Cursor::of_valid(text.as_bytes()).walk(|token| shown_of_valid.push(token));
        if walked.is_some() {
            prop_assert_eq!(shown, shown_of_valid);
        }
    }

    #[test]
    fn the_cursor_accepts_what_the_parser_accepts_after_a_random_change(
        text in texts(),
        place in any::<proptest::sample::Index>(),
        other in prop_oneof!["[\\[\\]{}\",:0-9eE.+ \\\\ntf-]", any::<char>().prop_map(String::from)],
        length in 0_usize..2,
    ) {
        let mut characters: Vec<String> = text.chars().map(String::from).collect();
        let place = place.index(characters.len());
        characters.splice(place..place + length, [other]);
        let text = characters.concat();
        prop_assert_eq!(Cursor::is_value(&text), parser_accepts(&text), "{}", text);
        let _ = Cursor::of_valid(text.as_bytes()).walk(|_| ());
    }
}
