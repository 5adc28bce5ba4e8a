//! Masks secrets of a replication for display.
//!
//! SOURCE    couch_replicator_utils and couch_replicator_docs: passwords in URLs are masked; for readers other than the
//!           document's owner, user information is removed entirely, as are `headers` and `auth`.
//! DIFFERS   For other readers, the user information of proxy URLs is removed as well. Of URL parameters only names are
//!           shown: any value may be a secret (`token`, `apikey`).

use super::credentials::{split_url, user_info};

/// The mask of a secret.
pub(crate) const MASK: &str = "*****";

/// Returns URL parameters, without the `?`, with masked values. A parameter without `=` counts as a value.
pub(crate) fn mask_query(query: &str) -> String {
    let mask = |param: &str| match param.split_once('=') {
        Some((name, value)) if !value.trim_matches('=').is_empty() => format!("{name}={MASK}"),
        _ if param.is_empty() => String::new(),
        // The whole parameter may be a secret in Base64, which may end in `=`.
        _ => MASK.to_owned(),
    };
    let masked: Vec<String> = query.split('&').map(mask).collect();
    masked.join("&")
}

/// Returns a URL with masked parameter values and fragment.
pub(crate) fn mask_params(url: &str) -> String {
    let path = url.find(['?', '#']).map_or(url.len(), |mark| mark + 1);
    format!("{}{}", &url[..path], mask_query(&url[path..]))
}

/// Returns a URL with its password and parameter values masked; `None` if it is not a URL: a password could be
/// anywhere in it.
pub fn mask_url(url: &str) -> Option<String> {
    url::Url::parse(url).ok()?;
    let Some(range) = user_info(url) else {
        return Some(mask_params(url));
    };
    let info = &url[range.start..range.end - 1];
    let masked = match info.split_once(':') {
        Some((user, _)) => format!("{user}:{MASK}@"),
        None => format!("{info}@"),
    };
    Some(format!(
        "{}{masked}{}",
        &url[..range.start],
        mask_params(&url[range.end..])
    ))
}

/// Removes user information and parameter values from a URL.
pub fn strip_url(url: &str) -> String {
    mask_params(&split_url(url).0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{BasicAuth, Defaults, Replication, UserCtx};
    use super::*;

    #[test]
    fn passwords_in_urls_are_masked() {
        let mask = |url| mask_url(url).unwrap();
        assert_eq!(mask("http://u:p@sproxy:12"), "http://u:*****@sproxy:12");
        assert_eq!(mask("socks5://u:p@tproxy:34"), "socks5://u:*****@tproxy:34");
        assert_eq!(mask("http://u:p:q@h/db/?a@b"), "http://u:*****@h/db/?*****");
        assert_eq!(
            mask("http://h/db?q=2&token=s&x=&&y"),
            "http://h/db?q=*****&token=*****&*****&&*****"
        );
        assert_eq!(mask("http://h?a=b=c;d=e#f=g"), "http://h?a=*****");
        assert_eq!(mask("http://h/#f"), "http://h/#*****");
        assert_eq!(mask("http://u@h/db/"), "http://u@h/db/");
        assert_eq!(mask("http://h/a@b"), "http://h/a@b");
        assert_eq!(mask_url("http//u:p@h/db"), None);
    }

    #[test]
    fn other_readers_see_no_credentials() {
        for (url, stripped) in [
            (
                "https://foo:bar@remote_server/database",
                "https://remote_server/database",
            ),
            ("http://u:p@h/db/?t=s", "http://h/db/?t=*****"),
            ("http://u:p@proxy:1", "http://proxy:1"),
        ] {
            assert_eq!(strip_url(url), stripped);
        }
    }

    proptest::proptest! {
        /// No password is shown, regardless of its characters.
        #[test]
        fn no_password_is_ever_shown(
            user in "[a-z%+.]{0,8}",
            word in "[0-9]{12}",
            odd in "[!$&'()*+,;=:@%~._-]{0,6}",
            path in "(/[a-z@:]{0,6}){0,3}",
            query in "[a-z=@:;&]{0,6}",
            param in "([a-z]{1,4}=)?",
        ) {
            let password = format!("{odd}{word}{odd}");
            let url = format!("http://{user}:{password}@h.example:1{path}?{query}&{param}{word}=&{query}");
            let basic = json!({"basic": {"username": user, "password": password}});
            let header = BasicAuth { user: user.clone(), password: password.clone() }.header_value();
            let body = json!({
                "source": url,
                "target": {"url": url, "auth": basic, "headers": {"Authorization": header}},
                "source_proxy": url, "target_proxy": url,
            });
            let mut shown = vec![strip_url(&url), mask_url(&url).unwrap_or_default()];
            let parsed =
                Replication::parse(&body, &Defaults::default(), UserCtx::default(), None);
            match parsed {
                Ok(parsed) => {
                    assert_eq!(parsed.source.auth.as_ref().unwrap().password, password);
                    shown.push(format!("{parsed:?}"));
                    for side in [&parsed.source, &parsed.target] {
                        shown.push(side.shown().to_owned());
                        shown.extend(side.shown_proxy());
                    }
                }
                Err(error) => shown.push(error.to_string()),
            }
            for text in shown {
                assert!(!text.contains(&word), "{text}");
                assert!(!text.contains(&header["Basic ".len()..]), "{text}");
            }
        }
    }
}
