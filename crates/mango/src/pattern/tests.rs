//! Expressions match as in PCRE, byte by byte.

use super::Pattern;

mod bytes;

fn matches(pattern: &str, string: &str) -> bool {
    let compiled = Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    compiled.is_match(string.as_bytes()).unwrap()
}

#[test]
fn common_expressions_work() {
    for (pattern, yes, no) in [
        ("", "anything", ""),
        ("abc", "xabcx", "ab"),
        ("^a|b$", "ax", "xa"),
        ("a.c", "abc", "a\nc"),
        ("(?s)a.c", "a\nc", "ac"),
        ("(?i)AbC", "aBc", "ab"),
        ("a(?i)b|c", "C", "A"),
        ("(?i:a)b", "Ab", "AB"),
        ("(?m)^b$", "a\nb\nc", "ab"),
        ("[a-c]+x", "abcx", "dx"),
        ("[^a-c]", "d", "abc"),
        ("[]x]", "]", "y"),
        ("[^]x]", "y", "]x"),
        ("[a-]", "-", "b"),
        (r"[\w-]", "-", "+"),
        (r"[a\]b]", "]", "c"),
        (r"[\d\s]", " ", "x"),
        (r"[^\D]", "5", "x"),
        ("[[:alpha:]]", "x", "5"),
        ("[[:^alpha:]]", "5", "x"),
        ("[a&&b]", "&", "c"),
        ("a{2}", "aa", "a"),
        ("^a{2,3}$", "aaa", "aaaa"),
        ("^a{2,}$", "aaaaa", "a"),
        ("a{,2}", "a{,2}", "aa"),
        ("a{x}", "a{x}", "a"),
        (r"\bfoo\b", "a foo b", "afoo"),
        (r"\d+\.\d", "3.5", "35"),
        (r"^\w+@\w+\.(com|org)$", "a@b.com", "a@b.net"),
        (r"\<a\>", "<a>", "a"),
        (r"\y", "y", "x"),
        (r"\-\/\_", "-/_", "-"),
        (r"\x41\x{42}\103\o{104}", "ABCD", "ABC"),
        (r"\t\n\r\f\e\a", "\t\n\r\u{c}\u{1b}\u{7}", ""),
        (r"\cA", "\u{1}", "A"),
        (r"\Qa.c\E.", "a.cd", "abcd"),
        (r"[\Q^]\E]", "]", "x"),
        (r"^\h+$", " \t", "\n"),
        (r"^\v$", "\u{b}", " "),
        (r"^\N$", "x", "\n"),
        ("(?x) a b # comment (\n c", "abc", "a b c"),
        ("(?x: a ) b", "a b", "ab"),
        ("a(?#note)b", "ab", "a"),
        (r"^\Aa\z", "a", "ba"),
    ] {
        assert!(matches(pattern, yes), "{pattern} matches {yes:?}");
        if !no.is_empty() {
            assert!(!matches(pattern, no), "{pattern} does not match {no:?}");
        }
    }
}

#[test]
fn look_around_back_references_and_atomic_groups_work() {
    for (pattern, yes, no) in [
        ("a(?=b)", "ab", "ac"),
        ("a(?!b)", "ac", "ab"),
        ("(?<=b)a", "ba", "ca"),
        ("(?<!b)a", "ca", "ba"),
        (r"(a|b)\1", "bb", "ab"),
        (r"(?<q>['x]).\k<q>", "'a'", "'ax"),
        (r"(?P<q>['x]).(?P=q)", "xax", "'ax"),
        (r"(?'q'a)\k{q}\g{q}", "aaa", "aa"),
        (r"(a)(b)\g{-1}", "abb", "aba"),
        (r"(a)\g1", "aa", "ab"),
        (r"(a)\10", "a\u{8}", "aa0"),
        ("^(?>a+)b", "aab", "aa"),
        ("a++a", "", "aaa"),
        ("a*+b", "aab", "aa"),
        (r"^(a)?(?(1)b|c)$", "ab", "b"),
        (r"a\Rb", "a\r\nb", "ab"),
    ] {
        if !yes.is_empty() {
            assert!(matches(pattern, yes), "{pattern} matches {yes:?}");
        }
        assert!(!matches(pattern, no), "{pattern} does not match {no:?}");
    }
}

#[test]
fn a_byte_is_a_character() {
    for (pattern, string, expected) in [
        ("^.$", "é", false),
        ("^..$", "é", true),
        ("^é$", "é", true),
        ("^é*$", "éé", false),
        ("^(é)*$", "éé", true),
        (r"^\é$", "é", true),
        ("^[é]$", "é", false),
        ("^[é]{2}$", "é", true),
        (r"^\xc3\xa9$", "é", true),
        (r"\x{e9}", "é", false),
        // Erlang's tables are for ISO-8859-1: 0xC3 is a letter, 0xA9 is not.
        (r"^\w\W$", "é", true),
        ("[[:alpha:]]", "é", true),
        ("(?i)é", "É", false),
        (r"^\C\C$", "é", true),
        (r"^\p{L}\P{L}$", "é", true),
    ] {
        assert_eq!(
            matches(pattern, string),
            expected,
            "{pattern} on {string:?}"
        );
    }
}

#[test]
fn the_end_matches_before_a_final_line_feed() {
    for (pattern, string, expected) in [
        ("a$", "a\n", true),
        ("a$", "a", true),
        ("a$", "a\n\n", false),
        ("a$", "a\nb", false),
        ("a$|^b", "a\n", true),
        (r"a\Z", "a\n", true),
        (r"a\Z", "a", true),
        (r"a\z", "a\n", false),
        ("(?m)a$", "a\nb\n", true),
        ("^$", "\n", true),
        (r"a\$", "a$\n", true),
        ("[$]", "\n", false),
    ] {
        assert_eq!(
            matches(pattern, string),
            expected,
            "{pattern} on {string:?}"
        );
    }
}

#[test]
fn malformed_and_unsupported_expressions_are_refused() {
    for pattern in [
        "(",
        ")",
        "a)",
        "(?:a",
        "[a",
        "[z-a]",
        "[a-",
        "*a",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{70000}",
        "\\",
        "[\\",
        r"\x{100}",
        r"\o{400}",
        r"\1",
        r"(a)\2",
        r"\k<n>",
        r"\g{n}",
        "[[:nope:]]",
        "(?<1a>b)",
        "(?<>b)",
        "(?zzz)",
        "(?",
        "(?i",
        "(?#",
        r"\p",
        r"\p{Nonesuch}",
        "(?R)",
        "(?1)(a)",
        "(?&n)(?<n>a)",
        "(*SKIP)a",
        "(?|a|b)",
        r"\X",
        r"\u0041",
        r"\N{U+41}",
        "(?<=a+)b",
        "+",
        "|*",
        "(?=a",
        r"\c",
        "a{1000}{1000}",
        "(?(x)a)",
        r"\g<1>(a)",
        r"\c€",
    ] {
        assert!(Pattern::new(pattern).is_err(), "{pattern}");
    }
}
