//! Every byte against every set, as answered by Erlang/OTP 25 (PCRE 8.44) to `re:run(<<Byte>>, Expression)`.

use super::super::Pattern;

/// Expressions, and the bytes that they match, in hexadecimal.
const SETS: &[(&[&str], &str)] = &[
    (
        &[r"\d", r"[\d]", r"[^\D]", r"[[:digit:]]", r"(?i)[[:digit:]]"],
        "30-39",
    ),
    (
        &[
            r"\D",
            r"[\D]",
            r"[^\d]",
            r"[[:^digit:]]",
            r"[^[:digit:]]",
            r"(?i)[[:^digit:]]",
        ],
        "0-2F 3A-FF",
    ),
    (
        &[
            r"\w",
            r"[\w]",
            r"[^\W]",
            r"[[:word:]]",
            r"(?i)[[:word:]]",
            r"(?i)\w",
            r"^.\b",
        ],
        "30-39 41-5A 5F 61-7A AA B5 BA C0-D6 D8-F6 F8-FF",
    ),
    (
        &[
            r"\W",
            r"[\W]",
            r"[^\w]",
            r"[[:^word:]]",
            r"[^[:word:]]",
            r"(?i)[[:^word:]]",
        ],
        "0-2F 3A-40 5B-5E 60 7B-A9 AB-B4 B6-B9 BB-BF D7 F7",
    ),
    (
        &[
            r"\s",
            r"[\s]",
            r"[^\S]",
            r"[[:space:]]",
            r"(?i)[[:space:]]",
            r"(?i)\s",
        ],
        "9-D 20",
    ),
    (
        &[
            r"\S",
            r"[\S]",
            r"[^\s]",
            r"[[:^space:]]",
            r"[^[:space:]]",
            r"(?i)[[:^space:]]",
        ],
        "0-8 E-1F 21-FF",
    ),
    (&[r"\h", r"[\h]", r"[^\H]"], "9 20 A0"),
    (&[r"\H", r"[\H]", r"[^\h]"], "0-8 A-1F 21-9F A1-FF"),
    (&[r"\v", r"\R", r"[\v]", r"[^\V]"], "A-D 85"),
    (&[r"\V", r"[\V]", r"[^\v]"], "0-9 E-84 86-FF"),
    (&[r"\N", r"."], "0-9 B-FF"),
    (&[r"\."], "2E"),
    (
        &[
            r"[[:alpha:]]",
            r"(?i)[[:alpha:]]",
            r"(?i)[[:lower:]]",
            r"(?i)[[:upper:]]",
        ],
        "41-5A 61-7A AA B5 BA C0-D6 D8-F6 F8-FF",
    ),
    (&[r"[[:lower:]]"], "61-7A AA B5 BA DF-F6 F8-FF"),
    (&[r"[[:upper:]]"], "41-5A C0-D6 D8-DE"),
    (
        &[r"[[:alnum:]]", r"(?i)[[:alnum:]]"],
        "30-39 41-5A 61-7A AA B5 BA C0-D6 D8-F6 F8-FF",
    ),
    (&[r"[[:ascii:]]", r"(?i)[[:ascii:]]"], "0-FF"),
    (&[r"[[:blank:]]", r"(?i)[[:blank:]]"], "9 20"),
    (
        &[
            r"[[:cntrl:]]",
            r"[[:^print:]]",
            r"[^[:print:]]",
            r"(?i)[[:cntrl:]]",
            r"(?i)[[:^print:]]",
        ],
        "0-1F 7F-9F",
    ),
    (&[r"[[:graph:]]", r"(?i)[[:graph:]]"], "21-7E A0-FF"),
    (
        &[
            r"[[:print:]]",
            r"[[:^cntrl:]]",
            r"[^[:cntrl:]]",
            r"(?i)[[:print:]]",
            r"(?i)[[:^cntrl:]]",
        ],
        "20-7E A0-FF",
    ),
    (
        &[r"[[:punct:]]", r"(?i)[[:punct:]]"],
        "21-2F 3A-40 5B-60 7B-7E A0-A9 AB-B4 B6-B9 BB-BF D7 F7",
    ),
    (&[r"[[:xdigit:]]", r"(?i)[[:xdigit:]]"], "30-39 41-46 61-66"),
    (
        &[
            r"[[:^alpha:]]",
            r"[^[:alpha:]]",
            r"(?i)[[:^alpha:]]",
            r"(?i)[[:^lower:]]",
            r"(?i)[[:^upper:]]",
        ],
        "0-40 5B-60 7B-A9 AB-B4 B6-B9 BB-BF D7 F7",
    ),
    (
        &[r"[[:^lower:]]", r"[^[:lower:]]"],
        "0-60 7B-A9 AB-B4 B6-B9 BB-DE F7",
    ),
    (&[r"[[:^upper:]]", r"[^[:upper:]]"], "0-40 5B-BF D7 DF-FF"),
    (
        &[r"[[:^alnum:]]", r"[^[:alnum:]]", r"(?i)[[:^alnum:]]"],
        "0-2F 3A-40 5B-60 7B-A9 AB-B4 B6-B9 BB-BF D7 F7",
    ),
    (&[r"[[:^ascii:]]", r"[^[:ascii:]]", r"(?i)[[:^ascii:]]"], ""),
    (
        &[r"[[:^blank:]]", r"[^[:blank:]]", r"(?i)[[:^blank:]]"],
        "0-8 A-1F 21-FF",
    ),
    (
        &[r"[[:^graph:]]", r"[^[:graph:]]", r"(?i)[[:^graph:]]"],
        "0-20 7F-9F",
    ),
    (
        &[r"[[:^punct:]]", r"[^[:punct:]]", r"(?i)[[:^punct:]]"],
        "0-20 30-39 41-5A 61-7A 7F-9F AA B5 BA C0-D6 D8-F6 F8-FF",
    ),
    (
        &[r"[[:^xdigit:]]", r"[^[:xdigit:]]", r"(?i)[[:^xdigit:]]"],
        "0-2F 3A-40 47-60 67-FF",
    ),
    (&[r"(?i)k"], "4B 6B"),
    (&[r"(?i)s"], "53 73"),
    (&[r"(?i)\xe9"], "C9 E9"),
    (&[r"(?i)\xdf"], "DF"),
    (&[r"(?i)\xff"], "FF"),
    (&[r"(?i)\xb5"], "B5"),
    (&[r"(?i)[\xe0-\xe5]"], "C0-C5 E0-E5"),
    (&[r"(?i)[^\xe9]"], "0-C8 CA-E8 EA-FF"),
    (&[r"(?i)[a-z]"], "41-5A 61-7A"),
    (&[r"(?i)[^k]"], "0-4A 4C-6A 6C-FF"),
    (&[r"(?i)\xd7"], "D7"),
    (&[r"(?i)\xf7"], "F7"),
    (&[r"(?i)[j-l]"], "4A-4C 6A-6C"),
    (&[r"(?i)\xc5"], "C5 E5"),
    (&[r"(?i)[\xc0-\xde]"], "C0-DE E0-F6 F8-FE"),
    (&[r"(?i)\xaa"], "AA"),
    (&[r"(?i)\xba"], "BA"),
    (
        &[r"^.\B"],
        "0-9 B-2F 3A-40 5B-5E 60 7B-A9 AB-B4 B6-B9 BB-BF D7 F7",
    ),
];

fn bytes_of(ranges: &str) -> Vec<u8> {
    let byte = |text: &str| u8::from_str_radix(text, 16).unwrap();
    let bytes_of_range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        byte(from)..=byte(to)
    };
    ranges.split_whitespace().flat_map(bytes_of_range).collect()
}

#[test]
fn sets_match_the_same_bytes_as_in_erlang() {
    for (expressions, ranges) in SETS {
        for expression in *expressions {
            let pattern = Pattern::new(expression).unwrap();
            let matched: Vec<u8> = (0..=255)
                .filter(|byte| pattern.is_match(&[*byte]).unwrap())
                .collect();
            assert_eq!(matched, bytes_of(ranges), "{expression}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn expressions_are_refused_or_accepted_as_in_erlang() {
    let is_accepted = |expression: &&str| Pattern::new(expression).is_ok();
    let refused = [
        r"\x{}",
        r"[\x{}]",
        r"a\x{}b",
        r"\o{}",
        r"\x{zz}",
        r"\x{",
        r"\x{100}",
        r"\x{ 41}",
        r"\o{9}",
        r"\o{400}",
        r"\o",
        r"\400",
        r"\777",
        r"\N{U+41}",
        "[[:foo:]]",
        "[[.a.]]",
        "[[=a=]]",
        "[:alpha:]",
        "[a-[:alpha:]]",
        r"[a-\d]",
        "[z-a]",
        "a{65536}",
        "a{2,1}",
        "(?i",
        "(?z)",
        r"[\N]",
        r"\c",
        r"\p{Foo}",
        "[]",
        "[^]",
        "(?<1a>x)",
        "(?<a>x)(?<a>y)",
        r"\k<a>",
        r"\1",
        r"(a)\2",
        "(?<=a+)b",
        "*a",
        "a**",
        "^*",
        "$+",
        r"\b*",
        r"\b+",
        "(?#",
        "(?",
        "(?:",
        "[a",
        "[[:alpha:]",
        r"\E*",
        "a|*",
        r"\G+",
        r"\A*",
        r"\K*",
        "(?i)*",
        "a(?i)*",
        r"\Z*",
        r"\z*",
        r"\B?",
        "[.a.]",
        "[=a=]",
        r"[a-\w]",
        r"[a-\p{L}]",
        r"[a-\h]",
        "[[:al[pha:]]",
        r"[:\]:]",
        "[a--]",
        "[a-[:foo:]]",
    ];
    let accepted: Vec<_> = refused.into_iter().filter(is_accepted).collect();
    assert_eq!(accepted, [""; 0], "Erlang refuses them");
    let accepted = [
        r"\x{ff}",
        r"\x{0ff}",
        r"\x{00000ff}",
        r"\xg",
        r"\x",
        r"\h{2}",
        "[[:]]",
        r"[\d-z]",
        "[[:alpha:]-z]",
        r"[\R]",
        r"[\X]",
        r"[\B]",
        "x{,3}",
        "(?<=a|bc)d",
        "a++",
        "a?+",
        "a{0}",
        r"\Q",
        r"\Qabc",
        "(|a)",
        "()*",
        "a(?#x)*",
        r"\8",
        r"\9",
        r"\18",
        r"[a-\E]",
        r"[a-\Qz\E]",
        r"[\Q-\Ez]",
        r"[\w-\d]",
        "[a-]",
        r"[a\-z]",
        "[:a]",
        "[[:alpha]",
        "[[.a]",
        r"[\E]x]",
        "[--a]",
        "[+--]",
        "[^-a]",
    ];
    let refused: Vec<_> = accepted
        .into_iter()
        .filter(|expression| !is_accepted(expression))
        .collect();
    assert_eq!(refused, [""; 0], "Erlang accepts them");
}
