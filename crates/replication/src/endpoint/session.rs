//! Sessions: a cookie, so that not every request carries a password.
//!
//! SUMMARY   A [`Session`] decides which credentials a request carries, when a new cookie is fetched, and whether a
//!           refused request is retried. It sends nothing itself.
//! PROMISES  The caller passes in the time. A server without sessions gets Basic credentials.
//! SOURCE    couch_replicator_auth_session.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use tokio::time::Instant;

use super::cookie::SessionCookie;

/// A session with a `Max-Age` is renewed after this part of it, in tenths.
const RENEWED_AFTER: u32 = 9;

/// A longer `Max-Age` counts as this one.
const AGE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The session of an endpoint.
pub(super) struct Session {
    state: State,
    /// Whether the server requires Basic credentials even for the request for a session.
    pub with_basic: bool,
    /// The age at which a session without a `Max-Age` is renewed.
    refresh_interval: Duration,
    /// The age from which a refused request renews a session.
    min_update_interval: Duration,
}

enum State {
    /// The server has not been tried yet.
    Unknown,
    /// No session is used: the server has none, sessions are off, or there are no credentials.
    Plain,
    Open(OpenSession),
}

struct OpenSession {
    cookie: String,
    /// The number of the login: a server may renew the cookie of a session with any answer.
    epoch: u64,
    since: Instant,
    renew_at: Instant,
}

/// The credentials of a request.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// None.
    Nothing,
    /// Basic credentials, if there are any.
    Basic,
    /// This header `Cookie`, of the session with this number.
    Cookie(String, u64),
}

/// The outcome of a request for a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoggedIn {
    /// Retry: it is now known which credentials a request carries, or how to log in.
    Known,
    /// No session, and a retry is useless.
    Refused(&'static str),
    /// No session this time.
    Failed(String),
}

impl Session {
    /// `wanted` is false without credentials, or if sessions are off.
    pub fn new(wanted: bool, refresh_interval: Duration, min_update_interval: Duration) -> Self {
        Self {
            state: if wanted { State::Unknown } else { State::Plain },
            with_basic: false,
            refresh_interval,
            min_update_interval,
        }
    }

    /// Returns the credentials of a request; `None` if a session has to be requested first.
    pub fn before(&self, now: Instant) -> Option<Credentials> {
        match &self.state {
            State::Plain => Some(Credentials::Basic),
            State::Open(open) if open.renew_at > now => {
                Some(Credentials::Cookie(open.cookie.clone(), open.epoch))
            }
            _ => None,
        }
    }

    /// Handles the answer to the request for a session.
    pub fn logged_in(&mut self, status: StatusCode, headers: &HeaderMap, now: Instant) -> LoggedIn {
        match status {
            _ if matches!(self.state, State::Plain) => LoggedIn::Known,
            StatusCode::OK => match SessionCookie::of(headers) {
                Some(cookie) => {
                    let epoch = self.epoch().map_or(0, |epoch| epoch + 1);
                    self.take_over(cookie, epoch, now);
                    LoggedIn::Known
                }
                None => LoggedIn::Failed("session_request_failed: no cookie in the answer".into()),
            },
            StatusCode::NOT_FOUND if matches!(self.state, State::Unknown) => {
                self.state = State::Plain;
                LoggedIn::Known
            }
            StatusCode::UNAUTHORIZED
                if !self.with_basic && headers.contains_key(WWW_AUTHENTICATE) =>
            {
                self.state = State::Unknown;
                self.with_basic = true;
                LoggedIn::Known
            }
            StatusCode::UNAUTHORIZED => LoggedIn::Refused("session_request_unauthorized"),
            StatusCode::FORBIDDEN => LoggedIn::Refused("session_request_forbidden"),
            status => {
                let code = status.as_u16();
                LoggedIn::Failed(format!("session_unexpected_result({code})"))
            }
        }
    }

    fn take_over(&mut self, cookie: SessionCookie, epoch: u64, now: Instant) {
        let lasts = match cookie.max_age {
            Some(age) => age.min(AGE_MAX) * RENEWED_AFTER / 10,
            None => self.refresh_interval,
        };
        self.state = State::Open(OpenSession {
            cookie: cookie.header,
            epoch,
            since: now,
            // Each login must serve some requests, or logins would never end.
            renew_at: now + lasts.max(Duration::from_secs(1)),
        });
    }

    /// Ends the session of this number: the next request begins another.
    pub fn expire(&mut self, lost: u64, now: Instant) {
        if let State::Open(open) = &mut self.state
            && open.epoch == lost
        {
            open.renew_at = now;
        }
    }

    /// Returns the number of the session, if there is one.
    pub fn epoch(&self) -> Option<u64> {
        match &self.state {
            State::Open(open) => Some(open.epoch),
            _ => None,
        }
    }

    /// Handles the answer to a request that carried `sent`. Returns whether to send the request again.
    pub fn answered(
        &mut self,
        sent: &Credentials,
        status: StatusCode,
        headers: &HeaderMap,
        now: Instant,
    ) -> bool {
        let (State::Open(open), Credentials::Cookie(cookie_sent, _)) = (&mut self.state, sent)
        else {
            return false;
        };
        if status.is_success() {
            if let Some(new) = SessionCookie::of(headers)
                && new.header != open.cookie
            {
                let epoch = open.epoch;
                self.take_over(new, epoch, now);
            }
            return false;
        }
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return false;
        }
        if *cookie_sent != open.cookie {
            return true;
        }
        if now.saturating_duration_since(open.since) >= self.min_update_interval {
            open.renew_at = now;
            return true;
        }
        // A new session would not help: the credentials lack this right.
        open.renew_at = open.renew_at.min(now + self.min_update_interval);
        false
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderValue, SET_COOKIE};

    use super::*;

    const OK: StatusCode = StatusCode::OK;
    const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;

    fn session() -> Session {
        Session::new(true, Duration::from_secs(550), Duration::from_secs(5))
    }

    fn cookie(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(SET_COOKIE, HeaderValue::from_static(text))])
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[track_caller]
    fn sends(session: &Session, now: Instant) -> Credentials {
        let credentials = session.before(now);
        credentials.expect("it asks for a session")
    }

    fn open(now: Instant) -> Session {
        let mut session = session();
        assert!(session.before(now).is_none() && !session.with_basic);
        assert_eq!(
            session.logged_in(OK, &cookie("AuthSession=a"), now),
            LoggedIn::Known
        );
        session
    }

    #[test]
    fn a_session_is_requested_first_and_its_cookie_sent() {
        let now = Instant::now();
        let session = open(now);
        assert!(sends(&session, now) == Credentials::Cookie("AuthSession=a".into(), 0));
    }

    #[test]
    fn no_session_is_requested_without_credentials() {
        let session = Session::new(false, seconds(550), seconds(5));
        assert!(sends(&session, Instant::now()) == Credentials::Basic);
    }

    #[test]
    fn a_server_without_sessions_gets_basic_credentials() {
        let now = Instant::now();
        let mut session = session();
        let none = HeaderMap::new();
        assert_eq!(
            session.logged_in(StatusCode::NOT_FOUND, &none, now),
            LoggedIn::Known
        );
        assert!(sends(&session, now) == Credentials::Basic);
        assert!(!session.answered(&Credentials::Basic, UNAUTHORIZED, &none, now));
    }

    #[test]
    fn a_server_that_wants_basic_credentials_for_a_session_gets_them() {
        let now = Instant::now();
        let mut session = session();
        let asks = HeaderMap::from_iter([(WWW_AUTHENTICATE, HeaderValue::from_static("Basic"))]);
        assert_eq!(session.logged_in(UNAUTHORIZED, &asks, now), LoggedIn::Known);
        assert!(session.before(now).is_none() && session.with_basic);
        assert_eq!(
            session.logged_in(OK, &cookie("AuthSession=a"), now),
            LoggedIn::Known
        );
        let later = now + seconds(550);
        assert!(
            session.before(later).is_none() && session.with_basic,
            "it remembers"
        );
        let refused = session.logged_in(UNAUTHORIZED, &asks, later);
        assert_eq!(refused, LoggedIn::Refused("session_request_unauthorized"));
    }

    #[test]
    fn a_failed_request_for_a_session_is_an_error_with_couchdbs_name() {
        let now = Instant::now();
        let none = HeaderMap::new();
        let answer = |status| session().logged_in(status, &none, now);
        assert_eq!(
            answer(UNAUTHORIZED),
            LoggedIn::Refused("session_request_unauthorized")
        );
        let forbidden = LoggedIn::Refused("session_request_forbidden");
        assert_eq!(answer(StatusCode::FORBIDDEN), forbidden);
        let unexpected = LoggedIn::Failed("session_unexpected_result(500)".into());
        assert_eq!(answer(StatusCode::INTERNAL_SERVER_ERROR), unexpected);
        assert!(matches!(answer(OK), LoggedIn::Failed(_)));
    }

    #[test]
    fn a_session_is_renewed_before_it_ends() {
        let now = Instant::now();
        let session = open(now);
        sends(&session, now + seconds(549));
        assert!(session.before(now + seconds(550)).is_none() && !session.with_basic);
        let mut session = self::session();
        session.logged_in(OK, &cookie("AuthSession=a; Max-Age=100"), now);
        sends(&session, now + seconds(89));
        assert!(session.before(now + seconds(90)).is_none() && !session.with_basic);
    }

    #[test]
    fn a_session_with_any_max_age_is_used() {
        let now = Instant::now();
        for text in [
            "AuthSession=a; Max-Age=0",
            "AuthSession=a; Max-Age=18446744073709551615",
        ] {
            let mut session = session();
            session.logged_in(OK, &cookie(text), now);
            sends(&session, now);
        }
    }

    #[test]
    fn a_new_cookie_of_any_answer_is_used() {
        let now = Instant::now();
        let mut session = open(now);
        let sent = sends(&session, now);
        assert!(!session.answered(&sent, OK, &cookie("AuthSession=b"), now));
        assert!(sends(&session, now) == Credentials::Cookie("AuthSession=b".into(), 0));
        let sent = sends(&session, now);
        assert!(!session.answered(&sent, OK, &cookie("AuthSession=b"), now));
        assert!(sends(&session, now) == Credentials::Cookie("AuthSession=b".into(), 0));
    }

    #[test]
    fn a_refused_request_with_an_older_cookie_is_sent_again_at_once() {
        let now = Instant::now();
        let mut session = open(now);
        let old = sends(&session, now);
        session.answered(&old, OK, &cookie("AuthSession=b"), now);
        let none = HeaderMap::new();
        assert!(session.answered(&old, UNAUTHORIZED, &none, now));
        assert!(session.answered(&old, StatusCode::FORBIDDEN, &none, now));
        sends(&session, now);
    }

    #[test]
    fn a_refused_request_renews_a_session_that_is_old_enough() {
        let now = Instant::now();
        let mut session = open(now);
        let sent = sends(&session, now);
        let later = now + seconds(5);
        assert!(session.answered(&sent, UNAUTHORIZED, &HeaderMap::new(), later));
        assert!(session.before(later).is_none() && !session.with_basic);
    }

    #[test]
    fn a_refused_request_with_a_fresh_session_is_not_retried() {
        let now = Instant::now();
        let mut session = open(now);
        let sent = sends(&session, now);
        let soon = now + seconds(1);
        assert!(!session.answered(&sent, StatusCode::FORBIDDEN, &HeaderMap::new(), soon));
        sends(&session, soon);
        assert!(session.before(soon + seconds(5)).is_none() && !session.with_basic);
        assert!(!session.answered(&sent, StatusCode::CONFLICT, &HeaderMap::new(), soon));
    }
}
