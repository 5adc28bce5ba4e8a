//! Logins: admission, the cache, lockout, and the limit of pending logins.

use tokio::sync::watch;

use super::*;
use crate::config::Config;

fn authority(password: &str) -> (Authority, watch::Sender<Arc<Config>>) {
    let (sender, receiver) = watch::channel(with_ann(password));
    (Authority::new(receiver), sender)
}

fn with_ann(password: &str) -> Arc<Config> {
    let mut config = Config::default();
    let hash = PasswordHash::of_config(password).unwrap();
    config.admins.insert("ann".into(), hash);
    Arc::new(config)
}

#[actix_rt::test]
async fn only_an_admins_name_and_password_log_in() {
    let (authority, _config) = authority("right");
    assert!(!authority.is_open());
    for _ in 0..2 {
        assert_eq!(authority.log_in("ann", "right", None).await, Ok(()));
    }
    for (name, password) in [("ann", "wrong"), ("bob", "right"), ("", ""), ("ann", "")] {
        let refused = authority.log_in(name, password, None).await;
        assert_eq!(refused, Err(LoginError::Incorrect), "{name} {password}");
    }
}

#[actix_rt::test]
async fn a_changed_password_applies_at_once_despite_cached_logins() {
    let (authority, config) = authority("right");
    assert_eq!(authority.log_in("ann", "right", None).await, Ok(()));
    config.send(with_ann("new")).unwrap();
    let refused = authority.log_in("ann", "right", None).await;
    assert_eq!(refused, Err(LoginError::Incorrect));
    assert_eq!(authority.log_in("ann", "new", None).await, Ok(()));
    config.send(Arc::new(Config::default())).unwrap();
    let refused = authority.log_in("ann", "new", None).await;
    assert_eq!(refused, Err(LoginError::Incorrect));
    // Without admins no login succeeds, and HTTP stays closed.
    assert!(!authority.is_open());
}

#[actix_rt::test]
async fn a_client_that_fails_too_often_is_locked_out_and_others_are_not() {
    // A cheap hash: this test is about counting.
    let cheap = "-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1";
    for [one, same, other] in [
        ["10.0.0.1", "10.0.0.1", "10.0.0.2"],
        ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"],
    ] {
        let (authority, _config) = authority(cheap);
        let from = |address: &str| Some(address.parse().unwrap());
        for _ in 0..FAILURES_MAX {
            let refused = authority.log_in("ann", "wrong", from(one)).await;
            assert_eq!(refused, Err(LoginError::Incorrect));
        }
        let refused = authority.log_in("ann", "password", from(same)).await;
        assert_eq!(refused, Err(LoginError::LockedOut));
        let logged_in = authority.log_in("ann", "password", from(other)).await;
        assert_eq!(logged_in, Ok(()));
    }
}

#[actix_rt::test]
async fn failures_under_unknown_names_lock_out_only_those_names() {
    let cheap = "-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1";
    let (authority, _config) = authority(cheap);
    let from = Some(IpAddr::from([10, 0, 0, 1]));
    for number in 0..2 * FAILURES_MAX {
        let name = format!("nobody{number}");
        let refused = authority.log_in(&name, "wrong", from).await;
        assert_eq!(refused, Err(LoginError::Incorrect), "{name}");
    }
    for _ in 1..FAILURES_MAX {
        let refused = authority.log_in("nobody0", "wrong", from).await;
        assert_eq!(refused, Err(LoginError::Incorrect));
    }
    // An unknown name is locked out like a known one.
    let refused = authority.log_in("nobody0", "wrong", from).await;
    assert_eq!(refused, Err(LoginError::LockedOut));
    assert_eq!(authority.log_in("ann", "password", from).await, Ok(()));
}

#[actix_rt::test]
async fn failures_under_many_names_do_not_clear_the_count_of_one() {
    let cheap = "-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1";
    let (authority, _config) = authority(cheap);
    for _ in 0..FAILURES_MAX {
        let refused = authority.log_in("ann", "wrong", None).await;
        assert_eq!(refused, Err(LoginError::Incorrect));
    }
    for number in 0..2 * FAILURES_REMEMBERED_MAX {
        authority.count_failure(authority.digest(&[&number.to_string()]));
        assert!(lock(&authority.failures).len() <= FAILURES_REMEMBERED_MAX);
    }
    let refused = authority.log_in("ann", "password", None).await;
    assert_eq!(refused, Err(LoginError::LockedOut));
}

#[actix_rt::test]
async fn one_address_cannot_fill_the_login_queue() {
    let cheap = "-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1";
    let (authority, _config) = authority(cheap);
    let from = |last| Some(IpAddr::from([10, 0, 0, last]));
    let flood = (0..WAITING_MAX).map(|number| {
        let (name, authority) = (format!("{number}"), &authority);
        async move { authority.log_in(&name, "wrong", from(1)).await }
    });
    let flood = futures_util::future::join_all(flood);
    let other = authority.log_in("ann", "password", from(2));
    let (flooded, let_in) = futures_util::future::join(flood, other).await;
    let busy = flooded.iter().filter(|r| **r == Err(LoginError::Busy));
    assert_eq!(busy.count(), WAITING_MAX - WAITING_OF_ADDRESS_MAX);
    assert_eq!(let_in, Ok(()));
}

#[actix_rt::test]
async fn concurrent_logins_with_one_password_all_succeed_and_leave_the_queue() {
    let (authority, _config) = authority("right");
    let all = (0..WAITING_OF_ADDRESS_MAX).map(|_| authority.log_in("ann", "right", None));
    let results = futures_util::future::join_all(all).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let waiting = lock(&authority.waiting);
    assert!(waiting.all == 0 && waiting.by_address.is_empty());
}

#[actix_rt::test]
async fn logins_beyond_the_queue_limit_are_refused() {
    // A cheap hash: this test is about the queue.
    let cheap = "-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1";
    let (authority, _config) = authority(cheap);
    let from = |number: usize| Some(IpAddr::from([10, 0, 0, u8::from(number.is_multiple_of(2))]));
    let all = (0..WAITING_MAX + 10).map(|number| {
        let authority = &authority;
        async move {
            authority
                .log_in(&number.to_string(), "wrong", from(number))
                .await
        }
    });
    let results = futures_util::future::join_all(all).await;
    let busy = results.iter().filter(|r| **r == Err(LoginError::Busy));
    assert_eq!(busy.count(), 10);
}
