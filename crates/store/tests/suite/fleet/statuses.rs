//! The status of jobs, as their daemons write it and the others read it.

use std::collections::BTreeMap;

use super::*;
use crate::fleet::{JobStatus, ReadStatus, StatusOf};

fn document(id: &str, body: &str) -> JobStatus {
    JobStatus {
        of: StatusOf::Document(id.into()),
        body: Some(body.to_owned()),
    }
}

fn transient(id: &str, body: Option<&str>) -> JobStatus {
    JobStatus {
        of: StatusOf::Transient(id.into()),
        body: body.map(str::to_owned),
    }
}

fn bodies(read: &[ReadStatus]) -> Vec<Option<&str>> {
    read.iter().map(|one| one.status.body.as_deref()).collect()
}

/// Statuses of others are read once, in the order of their numbers, and only owners write those of documents.
pub async fn statuses_of_others_are_read_once_and_only_owners_write_them(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let rev = ask(&store, &["a"]).await.remove(0);
    let (first, second) = (enter(fleet, 1).await.0, enter(fleet, 2).await.0);
    claim(fleet, first, 1, 9).await;
    let both = vec![document("a", "1"), document("b", "2")];
    fleet.write_statuses(second, both.clone()).await.unwrap();
    fleet.write_statuses(first, both).await.unwrap();
    assert_eq!(fleet.statuses(Some(first), vec![], 9).await.unwrap(), []);
    let read = fleet.statuses(Some(second), vec![], 9).await.unwrap();
    assert_eq!(bodies(&read), [Some("1")]);
    assert_eq!(read[0].epoch, first);
    // Two daemons may have the same transient job.
    for (epoch, body) in [(first, "3"), (second, "4")] {
        let job = vec![transient("t", Some(body))];
        fleet.write_statuses(epoch, job).await.unwrap();
    }
    let known = vec![(first, read[0].number)];
    let next = fleet.statuses(None, known, 9).await.unwrap();
    assert_eq!(bodies(&next), [Some("3"), Some("4")]);
    assert!(next[0].number > read[0].number);
    let known = vec![(first, next[0].number), (second, next[1].number)];
    let over = vec![transient("t", None)];
    fleet.write_statuses(first, over).await.unwrap();
    let last = fleet.statuses(None, known.clone(), 9).await.unwrap();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].status, transient("t", None));
    assert!(last[0].age < PATIENCE);
    // A daemon that released a document may still write its status, until another daemon owns it.
    let released = vec![("a".into(), Request(1))];
    fleet.release(first, released).await.unwrap();
    let bodies_of_a = || async {
        let all = fleet.statuses(None, known.clone(), 9).await.unwrap();
        let of_a = all.into_iter().map(|one| one.status);
        let of_a = of_a.filter(|status| status.of == StatusOf::Document("a".into()));
        of_a.map(|status| status.body).collect::<Vec<_>>()
    };
    for (epoch, body) in [(second, "5"), (first, "6")] {
        fleet
            .write_statuses(epoch, vec![document("a", body)])
            .await
            .unwrap();
    }
    assert_eq!(bodies_of_a().await, [Some("6".to_owned())]);
    claim(fleet, second, 2, 9).await;
    fleet
        .write_statuses(first, vec![document("a", "7")])
        .await
        .unwrap();
    assert_eq!(bodies_of_a().await, [Some("6".to_owned())]);
    one(&store, edit("a", Some(rev), DONE)).await.unwrap();
    let late = vec![document("a", "late")];
    fleet.write_statuses(first, late).await.unwrap();
    fleet.depart(second).await.unwrap();
    let job = vec![transient("t", Some("late"))];
    fleet.write_statuses(second, job).await.unwrap();
    let left = fleet.statuses(None, vec![], 9).await.unwrap();
    assert_eq!(
        bodies(&left),
        [None],
        "finished and departed jobs have no status"
    );
}

/// A reader misses no status while two daemons write.
pub async fn a_reader_misses_no_status_while_two_daemons_write(place: &TestPlace) {
    const JOBS: usize = 30;
    const WRITES: usize = 60;
    let (_store, fleet) = fleet_of(place);
    let body = |epoch: u64, job: usize, n: usize| format!("{epoch} {job} {n}");
    let writers = [1, 2].map(|epoch| {
        let (store, fleet) = fleet_of(place);
        async move {
            let _store = store;
            let (taken, _) = enter(&*fleet, epoch).await;
            for n in 0..WRITES {
                // Jobs are last written at various times.
                let jobs = (0..JOBS).filter(|job| n % (job + 1) == 0);
                let statuses = jobs.map(|job| {
                    let id = format!("{epoch}-{job}");
                    transient(&id, Some(&body(epoch, job, n)))
                });
                let statuses = statuses.collect();
                fleet.write_statuses(taken, statuses).await.unwrap();
            }
        }
    });
    let reader = async {
        let (mut known, mut seen) = (BTreeMap::new(), BTreeMap::new());
        let last = |job: usize| (0..WRITES).rev().find(|n| n % (job + 1) == 0).unwrap();
        let all = |epoch| (0..JOBS).map(move |job| (epoch, job));
        let expected: BTreeMap<String, String> = all(1)
            .chain(all(2))
            .map(|(epoch, job)| (format!("{epoch}-{job}"), body(epoch, job, last(job))))
            .collect();
        while seen != expected {
            let from = known.iter().map(|(epoch, number)| (*epoch, *number));
            let read = fleet.statuses(None, from.collect(), 11).await.unwrap();
            for one in read {
                let before = known.insert(one.epoch, one.number);
                assert!(before.is_none_or(|before| before < one.number), "{one:?}");
                let StatusOf::Transient(id) = one.status.of else {
                    panic!("only transient jobs are written");
                };
                seen.insert(id.to_string(), one.status.body.unwrap());
            }
        }
    };
    let reader = tokio::time::timeout(PATIENCE * 2, reader);
    let writers = futures_util::future::join_all(writers);
    let (read, _) = futures_util::future::join(reader, writers).await;
    read.expect("the last status of each job");
}
