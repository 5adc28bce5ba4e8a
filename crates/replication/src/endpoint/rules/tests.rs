use super::*;

const OWN: &str = "127.0.0.1:5995";

fn check(rules: (&str, &str), name: Option<&str>, address: &str) -> Result<(), String> {
    let rules = EndpointRules::parse(rules.0, rules.1).unwrap();
    let (address, port) = match address.parse::<SocketAddr>() {
        Ok(address) => (address.ip(), Some(address.port())),
        Err(_) => (address.parse().unwrap(), None),
    };
    let own = [OWN, "0.0.0.0:5994", "[::]:5996"].map(|text| text.parse().unwrap());
    let is_here = |address: IpAddr| {
        address.is_loopback() || address.is_unspecified() || address.to_string() == "10.9.9.9"
    };
    let judged = rules.check(name, address, port, &own, is_here);
    judged.map_err(|denied| denied.to_string())
}

#[track_caller]
fn denied(rules: (&str, &str), address: &str) {
    let judged = check(rules, None, address);
    let text = judged.expect_err(address);
    assert!(text.starts_with("endpoint_denied: "), "{text}");
}

#[test]
fn link_local_networks_and_own_listeners_are_denied_in_every_form() {
    for address in [
        "169.254.169.254",
        "fe80::1",
        "febf::1",
        "::ffff:169.254.169.254",
        "::ffff:0:169.254.1.1",
        "::169.254.1.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2002:a9fe:a9fe::1",
        "127.0.0.1:5995",
        "0.0.0.0:5995",
        "[::]:5995",
        "[::ffff:127.0.0.1]:5995",
        "[64:ff9b::7f00:1]:5995",
        "127.0.0.1:5994",
        "127.3.2.1:5994",
        "10.9.9.9:5994",
        "[::1]:5996",
        "10.9.9.9:5996",
    ] {
        denied(("*", ""), address);
    }
    for address in [
        "127.0.0.1:5984",
        "127.0.0.2:5995",
        "[::1]:5995",
        "10.1.1.1:5994",
        "169.253.0.1",
        "fec0::1",
        "64:ff9b::8.8.8.8",
        "::1",
        "2001:db8::1",
    ] {
        assert_eq!(check(("*", ""), None, address), Ok(()), "{address}");
    }
}

#[test]
fn an_explicit_entry_allows_a_host_that_is_otherwise_denied() {
    for (allowed, address) in [
        ("*, 127.0.0.1:5995", "127.0.0.1:5995"),
        ("127.0.0.0/8:5995", "127.0.0.1:5995"),
        ("*,169.254.0.0/16", "169.254.169.254"),
        ("*,169.254.169.254", "::ffff:169.254.169.254"),
        ("fe80::/64", "fe80::1"),
        ("*,[fe80::/10]:5984", "[fe80::1]:5984"),
    ] {
        assert_eq!(check((allowed, ""), None, address), Ok(()), "{allowed}");
    }
    for (allowed, address) in [
        ("*,127.0.0.0/8", "127.0.0.1:5995"),
        ("*,127.0.0.1:5996", "127.0.0.1:5995"),
        ("*:5995", "127.0.0.1:5995"),
        ("*,0.0.0.0/0", "169.254.1.1"),
        ("*,[fe80::/10]:5984", "[fe80::1]:5985"),
    ] {
        denied((allowed, ""), address);
    }
}

#[test]
fn only_allowed_hosts_that_are_not_denied_pass_the_check() {
    let rules = (
        "10.0.0.0/8, *.example.org, db.internal:5984",
        "10.6.0.0/16,bad.example.org",
    );
    let named = |name, address| check(rules, Some(name), address);
    assert_eq!(check(rules, None, "10.1.2.3"), Ok(()));
    denied(rules, "10.6.0.1");
    denied(rules, "64:ff9b::10.6.0.1");
    denied(rules, "11.0.0.1");
    assert_eq!(named("a.example.org", "11.0.0.1"), Ok(()));
    assert_eq!(named("A.EXAMPLE.ORG.", "11.0.0.1"), Ok(()));
    assert_eq!(named("db.internal", "11.0.0.1:5984"), Ok(()));
    assert!(named("db.internal", "11.0.0.1:5985").is_err());
    assert!(named("bad.example.org", "11.0.0.1").is_err());
    assert!(named("a.example.org", "10.6.0.1").is_err());
    assert!(named("example.org", "11.0.0.1").is_err());
    assert!(named("10.1.2.3.evil.net", "11.0.0.1").is_err());
}

#[test]
fn a_name_that_a_proxy_resolves_is_checked_without_an_address() {
    let rules = EndpointRules::parse("*.example.org,10.0.0.0/8", "bad.example.org").unwrap();
    let judged = |name, later| rules.check_name(name, 80, later).is_ok();
    assert!(judged("a.example.org", false) && judged("a.example.org", true));
    assert!(!judged("bad.example.org", false) && !judged("bad.example.org", true));
    assert!(!judged("other.net", false) && judged("other.net", true));
}

#[test]
fn invalid_entries_are_named() {
    for wrong in [
        "a b",
        "*example",
        "*.*.x",
        "10.0.0.0/33",
        "[::1",
        "[::1]x",
        "[::1]:0",
        "h:99999",
        "h:",
        "http://h",
        "a/b",
        "*.10.0.0.1",
    ] {
        assert_eq!(
            EndpointRules::parse(&format!("*,{wrong}"), ""),
            Err(wrong.to_owned())
        );
    }
    assert!(EndpointRules::parse("*:5984,ex\u{e4}mple.org,::1,10.1.2.3/8,[::1]:1", "").is_ok());
}

#[test]
fn an_origin_is_the_same_however_it_is_written() {
    let same = |a: &str, b: &str| {
        let [a, b] = [a, b].map(|text| origin(&Url::parse(text).unwrap()));
        a == b
    };
    for (a, b) in [
        ("http://h/", "http://H:80/x?y"),
        ("https://h:443", "https://u:p@h"),
        ("http://ex\u{e4}mple.org", "http://XN--EXMPLE-CUA.org."),
        ("http://127.1:1", "http://0x7f000001:1"),
        ("http://[::1]:5", "http://[0:0::1]:5"),
    ] {
        assert!(same(a, b), "{a} {b}");
    }
    for (a, b) in [
        ("http://h/", "https://h/"),
        ("http://h/", "http://h:81/"),
        ("http://h/", "http://h.x/"),
        ("http://127.0.0.1/", "http://localhost/"),
        ("http://127.0.0.1/", "http://[::ffff:127.0.0.1]/"),
    ] {
        assert!(!same(a, b), "{a} {b}");
    }
    assert_eq!(
        parse_origin("HTTPS://B.example:443/").as_deref(),
        Some("https://b.example")
    );
    for wrong in [
        "b.example",
        "ftp://b",
        "http://b/x",
        "http://u@b",
        "http://b?x",
        "*",
    ] {
        assert_eq!(parse_origin(wrong), None, "{wrong}");
    }
}
