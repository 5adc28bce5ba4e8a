//! What servers say, as errors show it: the beginning, without secrets.

use super::super::spec::EndpointSpec;

/// The most bytes of a body that an error shows.
pub(super) const BODY_SHOWN: usize = 1024;

/// The most bytes of a URL that an error shows.
const URL_SHOWN: usize = 1024;

/// A shorter text is no secret, and hiding it would hide everything.
const SECRET_MIN: usize = 4;

/// What stands for a secret.
const MASK: &str = "*****";

/// Returns the beginning of a body, as text on one line.
pub fn shown(body: &[u8]) -> String {
    beginning(body, BODY_SHOWN)
}

/// Returns the beginning of a URL.
pub(super) fn shown_url(url: &str) -> String {
    beginning(url.as_bytes(), URL_SHOWN)
}

fn beginning(text: &[u8], most: usize) -> String {
    let cut = &text[..text.len().min(most)];
    let plain = |character: char| match character.is_control() {
        true => ' ',
        false => character,
    };
    let mut shown: String = String::from_utf8_lossy(cut).chars().map(plain).collect();
    shown.truncate(shown.trim_end().len());
    if cut.len() < text.len() {
        shown.push_str("..");
    }
    shown
}

/// What an endpoint sends and nobody may read: servers and proxies repeat it in their errors.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of(spec: &EndpointSpec) -> Self {
        let mut secrets: Vec<String> = spec
            .headers
            .iter()
            .map(|(_, value)| value.clone())
            .collect();
        if let Some(auth) = &spec.auth {
            let header = auth.header_value();
            secrets.extend(header.strip_prefix("Basic ").map(str::to_owned));
            secrets.push(super::encode(&auth.password));
            secrets.push(auth.password.clone());
        }
        secrets.retain(|secret| secret.len() >= SECRET_MIN);
        Self(secrets)
    }

    /// Returns what may be shown of a body.
    pub(super) fn shown(&self, body: &[u8]) -> String {
        // A secret that is cut in two by the end of what is shown is still one.
        let longest = self.0.iter().map(String::len).max().unwrap_or(0);
        let cut = &body[..body.len().min(BODY_SHOWN + longest)];
        let mut text = String::from_utf8_lossy(cut).into_owned();
        for secret in &self.0 {
            text = text.replace(secret, MASK);
        }
        if cut.len() < body.len() {
            // More than is shown, so that its end shows that there is more.
            text.push_str(&" .".repeat(BODY_SHOWN));
        }
        shown(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::replication::testing::spec;

    #[test]
    fn the_beginning_of_a_body_is_shown_on_one_line() {
        assert_eq!(shown(b"{\"error\":\"x\"}\n"), "{\"error\":\"x\"}");
        assert_eq!(shown(b"a\r\n\x1b[31mb\xff"), "a   [31mb\u{fffd}");
        let long = shown(&[b'x'; BODY_SHOWN + 1]);
        assert!(long.len() == BODY_SHOWN + 2 && long.ends_with(".."));
    }

    #[test]
    fn secrets_are_masked_also_where_the_text_is_cut() {
        let spec = spec(
            &json!({"url": "http://ann:top secret@h/db", "headers": {"x-token": "12345678", "x": "a"}}),
        );
        let secrets = Secrets::of(&spec);
        let said = "top secret 12345678 YW5uOnRvcCBzZWNyZXQ= top%20secret a";
        assert_eq!(secrets.shown(said.as_bytes()), "***** ***** ***** ***** a");
        for before in BODY_SHOWN - 12..BODY_SHOWN + 2 {
            let said = format!("{}top secret{}", "x".repeat(before), "y".repeat(5000));
            let shown = secrets.shown(said.as_bytes());
            assert!(
                !shown.contains("to") && shown.ends_with(".."),
                "{before}: {shown}"
            );
        }
    }
}
