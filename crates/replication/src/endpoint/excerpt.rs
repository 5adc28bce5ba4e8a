//! What errors show of a server's response: its beginning, with secrets masked.

use json::shown::is_unprintable;
use percent_encoding::percent_decode_str;

use crate::spec::{EndpointSpec, MASK, ProxySpec};

/// The most bytes of a body or a URL that an error shows.
pub(super) const BODY_SHOWN: usize = 1024;

/// Shorter secrets are not masked: ordinary text would contain them by chance.
const SECRET_MIN: usize = 4;

/// Returns the beginning of a body or a URL, as text on one line.
pub(crate) fn shown(text: &[u8]) -> String {
    let cut = &text[..text.len().min(BODY_SHOWN)];
    let mut shown = String::from_utf8_lossy(cut).replace(is_unprintable, " ");
    shown.truncate(shown.trim_end().len());
    if cut.len() < text.len() {
        shown.push_str("..");
    }
    shown
}

/// Shorter parts of a header are not masked separately.
const PART_MIN: usize = 8;

/// Returns a text as written in URLs, in forms and in JSON.
fn forms(text: &str) -> [String; 3] {
    let form = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let json = serde_json::Value::from(text).to_string();
    let json = json[1..json.len() - 1].to_owned();
    [super::encode(text), form, json]
}

/// The secrets that an endpoint sends: servers and proxies may repeat them in their errors.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub fn of(spec: &EndpointSpec) -> Self {
        let mut secrets = Vec::new();
        for (_, value) in &spec.headers {
            secrets.push(value.clone());
            // After `Bearer`, or in a cookie.
            let parts = value.split([' ', ';', ',', '=']);
            secrets.extend(
                parts
                    .filter(|part| part.len() >= PART_MIN)
                    .map(str::to_owned),
            );
        }
        if let Some((_, query)) = spec.url.split_once('?') {
            for param in query.split('&') {
                let value = param.split_once('=').map_or(param, |(_, value)| value);
                secrets.push(value.to_owned());
                secrets.push(percent_decode_str(value).decode_utf8_lossy().into_owned());
            }
        }
        let of_proxy = spec.proxy.as_ref().and_then(ProxySpec::auth);
        for auth in spec.auth.clone().into_iter().chain(of_proxy) {
            let header = auth.header_value();
            secrets.extend(header.strip_prefix("Basic ").map(str::to_owned));
            secrets.push(auth.password);
        }
        let forms: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        secrets.extend(forms);
        secrets.retain(|secret| secret.len() >= SECRET_MIN);
        // Longest first: masking a shorter secret inside a longer one would leave the rest of it readable.
        secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets)
    }

    /// Returns the part of a body that may be shown.
    pub fn shown(&self, body: &[u8]) -> String {
        // A secret cut off by the end of the shown part must also be masked.
        let longest = self.0.iter().map(String::len).max().unwrap_or(0);
        let cut = &body[..body.len().min(BODY_SHOWN + longest)];
        let mut text = String::from_utf8_lossy(cut).into_owned();
        for secret in &self.0 {
            text = text.replace(secret, MASK);
        }
        text = without_session(&text);
        if cut.len() == body.len() {
            return shown(text.as_bytes());
        }
        // Masks may have moved the end, which may be a part of a secret, into the shown part.
        let end = text.len().saturating_sub(longest);
        text.truncate(text.floor_char_boundary(end));
        // The mark of the cut.
        text.push_str("..");
        shown(text.as_bytes())
    }
}

/// Masks the values of session cookies.
fn without_session(text: &str) -> String {
    const NAME: &str = "AuthSession=";
    let mut parts = text.split(NAME);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_end = |c: char| c.is_whitespace() || ";,\"".contains(c);
        let end = part.find(is_end).unwrap_or(part.len());
        masked.extend([NAME, MASK, &part[end..]]);
    }
    masked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::spec;

    #[test]
    fn the_beginning_of_a_body_is_shown_on_one_line() {
        assert_eq!(shown(b"{\"error\":\"x\"}\n"), "{\"error\":\"x\"}");
        assert_eq!(shown(b"a\r\n\x1b[31mb\xff"), "a   [31mb\u{fffd}");
        let long = shown(&[b'x'; BODY_SHOWN + 1]);
        assert!(long.len() == BODY_SHOWN + 2 && long.ends_with(".."));
    }

    #[test]
    fn secrets_are_masked_even_where_the_text_is_cut() {
        let spec = spec(
            &json!({"url": "http://ann:top secret@h/db?key=t%22ken!&bare1&q=2",
                "headers": {"x-token": "12345678", "x": "a", "y": "Bearer abcdefgh=="}}),
        );
        let secrets = Secrets::of(&spec);
        let said = "top secret 12345678 YW5uOnRvcCBzZWNyZXQ= top%20secret a";
        assert_eq!(secrets.shown(said.as_bytes()), "***** ***** ***** ***** a");
        let said = r#"top+secret t%22ken! t"ken! t\"ken! t%22ken%21 bare1 abcdefgh 2"#;
        assert_eq!(
            secrets.shown(said.as_bytes()),
            "***** ***** ***** ***** ***** ***** ***** 2"
        );
        for before in BODY_SHOWN - 12..BODY_SHOWN + 2 {
            let said = format!("{}top secret{}", "x".repeat(before), "y".repeat(5000));
            let shown = secrets.shown(said.as_bytes());
            assert!(
                !shown.contains("to") && shown.ends_with(".."),
                "{before}: {shown}"
            );
        }
    }

    #[test]
    fn no_part_of_a_repeated_secret_and_no_session_is_shown() {
        let token = "0123456789".repeat(100);
        let secrets = Secrets::of(&spec(
            &json!({"url": "http://h/db", "headers": {"x": token}}),
        ));
        let (between, behind) = ("x".repeat(200), "y".repeat(5000));
        let said = secrets.shown(format!("{token}{between}{token}{behind}").as_bytes());
        assert!(!said.contains("0123") && said.ends_with(".."), "{said}");
        let said = secrets.shown(b"cookie: AuthSession=abcdef; x");
        assert_eq!(said, "cookie: AuthSession=*****; x");
    }
}
