//! Revisions of documents: what a replication asks for, and single revisions for others.
//!
//! SUMMARY   `open_revs`, `_bulk_get` and `_revs_diff` over the leaves that the reader may see.
//! SOURCE    chttpd_db: open_revs, send_docs_multipart/4, `_bulk_get`, `_revs_diff`.
//! LIMITS    Bodies of revisions that are no leaves are not kept: they are `missing`, as in CouchDB
//!           after a compaction.

use actix_web::HttpResponse;
use actix_web::http::header;
use data_encoding::HEXLOWER;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};

use super::super::answer::{self, Answer, Refusal};
use super::super::params::Params;
use super::super::request::text;
use super::{Call, missing};
use crate::config::password::random;
use crate::replicator::document::invalid_rev;
use crate::replicator::members::Members;
use crate::replicator::seen::{SeenLeaf, seen};
use crate::store::Revision;

/// What a reader wants to know of a document's revisions beside the document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    revs: bool,
    revs_info: bool,
    conflicts: bool,
    deleted_conflicts: bool,
}

impl Wants {
    /// Reads what the parameters say.
    pub(super) fn of(params: &Params) -> Result<Self, Refusal> {
        let meta = params.boolean("meta", false)?;
        Ok(Self {
            revs: params.boolean("revs", false)?,
            revs_info: meta || params.boolean("revs_info", false)?,
            conflicts: meta || params.boolean("conflicts", false)?,
            deleted_conflicts: meta || params.boolean("deleted_conflicts", false)?,
        })
    }

    /// Returns a leaf as a document, with what is wanted to be known of it. `leaves` are all of them.
    pub(super) fn whole(self, id: &str, leaf: &SeenLeaf, leaves: &[SeenLeaf]) -> Members {
        let mut whole = leaf.whole(id);
        if self.revs {
            let hashes = leaf.revisions().iter().map(|rev| rev.hash.as_str().into());
            let ids: Vec<Value> = hashes.collect();
            let revisions = json!({"start": leaf.revision().number, "ids": ids});
            whole.set("_revisions", revisions);
        }
        if self.revs_info {
            let own = if leaf.deleted { "deleted" } else { "available" };
            let info = |rev: &Revision| match *rev == leaf.revision() {
                true => json!({"rev": rev.to_string(), "status": own}),
                false => json!({"rev": rev.to_string(), "status": "missing"}),
            };
            let infos: Vec<Value> = leaf.revisions().iter().map(info).collect();
            whole.set("_revs_info", infos);
        }
        let mut others = |name: &str, deleted: bool| {
            let others = leaves
                .iter()
                .filter(|other| other.deleted == deleted && other.revision() != leaf.revision());
            let revs: Vec<Value> = others.map(|other| rev_text(other).into()).collect();
            if !revs.is_empty() {
                whole.set(name, revs);
            }
        };
        if self.conflicts {
            others("_conflicts", false);
        }
        if self.deleted_conflicts {
            others("_deleted_conflicts", true);
        }
        whole
    }
}

fn rev_text(leaf: &SeenLeaf) -> String {
    leaf.revision().to_string()
}

/// Reads a revision.
pub(super) fn parse_rev(text: &str) -> Result<Revision, Refusal> {
    Ok(text.parse().map_err(|_| invalid_rev())?)
}

/// Which revisions are asked for.
enum Wanted {
    /// All leaves.
    All,
    /// These.
    These(Vec<Revision>),
}

impl Wanted {
    fn of(text: &str) -> Result<Self, Refusal> {
        if text == "all" || text == "\"all\"" {
            return Ok(Self::All);
        }
        let wrong =
            || Refusal::bad_request("`open_revs` must be `all` or a JSON array of revisions");
        let revs: Vec<String> = serde_json::from_str(text).map_err(|_| wrong())?;
        let revs: Result<_, Refusal> = revs.iter().map(|rev| parse_rev(rev)).collect();
        Ok(Self::These(revs?))
    }
}

/// A revision that was asked for, or is not there.
type Found<'a> = Result<&'a SeenLeaf, Revision>;

fn find<'a>(leaves: &'a [SeenLeaf], wanted: &Wanted, latest: bool) -> Vec<Found<'a>> {
    let revs = match wanted {
        Wanted::All => return leaves.iter().map(Ok).collect(),
        Wanted::These(revs) => revs,
    };
    // One walk over the leaves, however many revisions are asked for.
    let asked: FxHashSet<Revision> = revs.iter().copied().collect();
    let mut places: FxHashMap<Revision, Vec<usize>> = FxHashMap::default();
    for (place, leaf) in leaves.iter().enumerate() {
        let known = match latest {
            true => leaf.revisions(),
            false => &leaf.revisions()[..1],
        };
        for rev in known.iter().filter(|rev| asked.contains(rev)) {
            places.entry(*rev).or_default().push(place);
        }
    }
    let mut found: Vec<Found<'a>> = Vec::with_capacity(revs.len());
    let mut is_found = vec![false; leaves.len()];
    for rev in revs {
        let Some(places) = places.get(rev) else {
            found.push(Err(*rev));
            continue;
        };
        for &place in places {
            // Two revisions of one branch have the same leaf.
            if !std::mem::replace(&mut is_found[place], true) {
                found.push(Ok(&leaves[place]));
            }
        }
    }
    found
}

/// `GET` with `open_revs`: as parts of a multipart for who takes that, else as a JSON array.
pub(super) fn open_revs(call: &Call<'_>, id: &str, leaves: &[SeenLeaf], wanted: &str) -> Answer {
    let wanted = Wanted::of(wanted)?;
    if leaves.is_empty() && matches!(wanted, Wanted::All) {
        return Err(missing());
    }
    let wants = Wants::of(&call.params)?;
    let found = find(leaves, &wanted, call.params.boolean("latest", false)?);
    let accepted = text(call.request, header::ACCEPT).unwrap_or_default();
    let takes_parts = accepted
        .split([',', ';', ' '])
        .any(|word| word.eq_ignore_ascii_case("multipart/mixed"));
    let whole = |leaf: &SeenLeaf| wants.whole(id, leaf, leaves);
    if takes_parts {
        return Ok(parts(found.into_iter().map(|found| found.map(whole))));
    }
    let rows = found.into_iter().map(|found| match found {
        Ok(leaf) => Members::default().with("ok", whole(leaf)),
        Err(rev) => Members::default().with("missing", rev.to_string()),
    });
    Ok(answer::ok(&rows.collect::<Vec<_>>()))
}

/// Documents, and revisions that are not there, as a `multipart/mixed`.
fn parts(found: impl Iterator<Item = Result<Members, Revision>>) -> HttpResponse {
    let boundary = HEXLOWER.encode(&random::<16>());
    let mut body = format!("--{boundary}");
    for found in found {
        let (kind, value) = match found {
            Ok(whole) => ("application/json", whole),
            Err(rev) => (
                "application/json; error=\"true\"",
                Members::default().with("missing", rev.to_string()),
            ),
        };
        body.push_str(&format!(
            "\r\nContent-Type: {kind}\r\n\r\n{value}\r\n--{boundary}"
        ));
    }
    body.push_str("--");
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "must-revalidate"))
        .content_type(format!("multipart/mixed; boundary=\"{boundary}\""))
        .body(body)
}

/// One document of a `_bulk_get`.
struct Asked {
    id: String,
    /// As it was sent.
    rev: Option<String>,
    wanted: Option<Wanted>,
}

/// `POST _bulk_get`: an answer for each entry, in their order.
pub(super) async fn bulk_get(call: &Call<'_>, body: &Value) -> Answer {
    let params = call.params.clone().with_body(body);
    let wants = Wants::of(&params)?;
    let latest = params.boolean("latest", false)?;
    let Some(docs) = body.get("docs").and_then(Value::as_array) else {
        return Err(Refusal::bad_request("Missing JSON list of 'docs'."));
    };
    let asked: Vec<Option<Asked>> = docs.iter().map(asked).collect();
    let ids = asked.iter().flatten().map(|asked| asked.id.clone());
    let trees = call.database.store().trees(ids.collect()).await?;
    let mut trees = trees.iter();
    let mut results = Vec::with_capacity(asked.len());
    for asked in asked {
        let Some(Asked { id, rev, wanted }) = asked else {
            let error = error_of(
                &Value::Null,
                &Value::Null,
                "bad_request",
                "document id missed",
            );
            let row = Members::default().with("id", Value::Null);
            results.push(row.with("docs", [error]));
            continue;
        };
        let leaves = trees.next().map(|tree| seen(tree, &call.person));
        let leaves = leaves.unwrap_or_default();
        let failed = |rev: Value, name, reason| error_of(&id.as_str().into(), &rev, name, reason);
        let given = rev.map_or_else(|| "undefined".into(), Value::String);
        let shown: Vec<Members> = match wanted {
            None => vec![failed(given, "bad_request", "Invalid rev format")],
            Some(_) if leaves.is_empty() => vec![failed(given, "not_found", "missing")],
            Some(wanted) => find(&leaves, &wanted, latest)
                .into_iter()
                .map(|found| match found {
                    Ok(leaf) => Members::default().with("ok", wants.whole(&id, leaf, &leaves)),
                    Err(rev) => failed(rev.to_string().into(), "not_found", "missing"),
                })
                .collect(),
        };
        results.push(Members::default().with("id", id).with("docs", shown));
    }
    Ok(answer::ok(&Members::default().with("results", results)))
}

/// Reads an entry; none without an id.
fn asked(entry: &Value) -> Option<Asked> {
    let id = entry["id"].as_str()?.to_owned();
    let rev = entry.get("rev").and_then(Value::as_str).map(str::to_owned);
    let wanted = match &rev {
        None => Some(Wanted::All),
        Some(rev) => rev.parse().ok().map(|rev| Wanted::These(vec![rev])),
    };
    Some(Asked { id, rev, wanted })
}

fn error_of(id: &Value, rev: &Value, name: &str, reason: &str) -> Members {
    let error = json!({"id": id, "rev": rev, "error": name, "reason": reason});
    Members::default().with("error", error)
}

/// `POST _revs_diff`: of the revisions that are sent those that are not here.
pub(super) async fn revs_diff(call: &Call<'_>, body: &Value) -> Answer {
    let wrong = || Refusal::bad_request("the body must be an object: {ID: [REV, ..], ..}");
    let members = body.as_object().ok_or_else(wrong)?;
    let mut asked = Vec::with_capacity(members.len());
    for (id, revs) in members {
        let revs = revs.as_array().ok_or_else(wrong)?;
        let rev = |rev: &Value| parse_rev(rev.as_str().unwrap_or_default());
        let revs: Result<Vec<Revision>, Refusal> = revs.iter().map(rev).collect();
        asked.push((id, revs?));
    }
    let ids = asked.iter().map(|(id, _)| (*id).clone()).collect();
    let trees = call.database.store().trees(ids).await?;
    let mut answer = Map::new();
    for ((id, revs), tree) in asked.into_iter().zip(trees) {
        let found = tree.missing(&revs);
        if found.missing.is_empty() {
            continue;
        }
        let texts = |revs: &[Revision]| revs.iter().map(Revision::to_string).collect::<Vec<_>>();
        let mut row = json!({"missing": texts(&found.missing)});
        if !found.possible_ancestors.is_empty() {
            row["possible_ancestors"] = texts(&found.possible_ancestors).into();
        }
        answer.insert(id.clone(), row);
    }
    Ok(answer::ok(&answer))
}
