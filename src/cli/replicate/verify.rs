//! Compares both sides of a replication, and reports what the target lacks.
//!
//! SUMMARY   [`Run::compare`] opens both databases, compares them with [`Verifier`], prints a line for each
//!           difference when found, and a summary at the end.
//! CALLED    By `settee replicate --verify` and `settee jobs verify`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use super::outcome::explain;
use super::progress::duration;
use super::resume::{Compared, ResumeFile};
use super::{Prepared, Run};
use crate::cli::exit::{CliError, CliResult, Exit};
use crate::cli::output::{Output, json_or};
use crate::cli::table::{count, printable};
use crate::cli::terminal::{clear_line, draw_line, per_second};
use replication::endpoint::HttpSettings;
use replication::filter::{FilterHere, FilterPool};
use replication::open::{changes_pending, open_endpoint};
use replication::seq::Seq;
use replication::verify::{Counts, Step, Verifier};

/// How both sides are compared.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Comparing {
    /// Whether the bytes of attachments are compared.
    pub(in crate::cli) deep: bool,
    /// The file for saving the progress.
    pub(in crate::cli) resume: Option<PathBuf>,
    /// Whether to print JSON.
    pub(in crate::cli) json: bool,
    /// The replication's document, if it is one of several: then only its summary is printed.
    pub(in crate::cli) one_of: Option<String>,
}

impl Run<'_> {
    /// Compares and reports. Returns whether the comparison completed: `false` if the reader of standard output has
    /// closed, or if the target of one of several replications lacks something.
    ///
    /// # Errors
    /// The target of a single replication lacks something (exit code 65), or the comparison fails.
    pub(super) async fn compare(
        self,
        how: &Comparing,
        prepared: &Prepared,
        filters: &FilterPool,
    ) -> CliResult<bool> {
        let (replication, config) = (&self.replication, &self.config.replicator);
        let (options, threshold) = (&replication.options, config.health_threshold);
        let endpoint = |spec, settings| prepared.http.endpoint(spec, settings).map_err(explain);
        let of_source = HttpSettings::of_source(options, threshold);
        let source = endpoint(&replication.source, of_source)?;
        let of_target = HttpSettings::of_target(options, threshold);
        let target = endpoint(&replication.target, of_target)?;
        for side in [&source, &target] {
            open_endpoint(side, None).await.map_err(explain)?;
        }
        let Prepared { id, identity, .. } = prepared;
        let id_max = config.max_document_id_length;
        let filter = FilterHere::open(replication, id, identity, &source, filters)
            .await
            .map_err(explain)?;
        let mut report = Report::new(how);
        let (mut file, resumed) = ResumeFile::open(
            how.resume.as_deref(),
            &Compared::new(id.to_string(), how.deep),
            |step| report.step(step).map(drop),
        )?;
        let since = resumed
            .since
            .or_else(|| options.since_seq.clone())
            .unwrap_or_else(Seq::zero);
        report.began_with = report.counts.revisions;
        if report.is_seen {
            report.expected = changes_pending(&source, &since).await;
        }
        let verifier = Verifier {
            source,
            target,
            options: options.clone(),
            filter,
            id_max: id_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            deep: how.deep,
            since,
            suspects: resumed.suspects,
            refused: self.refused,
            log: self.log,
        };
        let mut stopped = None;
        let ran = verifier
            .run(|step| {
                file.note(&step)
                    .and_then(|()| report.step(&step))
                    .unwrap_or_else(|error| {
                        stopped = Some(error);
                        ControlFlow::Break(())
                    })
            })
            .await;
        clear_line();
        if let Some(error) = stopped {
            return Err(error);
        }
        ran.map_err(explain)?;
        if report.reader_is_gone {
            return Ok(false);
        }
        file.finish()?;
        report.end()
    }
}

/// The state of the report.
struct Report<'a> {
    json: bool,
    one_of: Option<&'a str>,
    output: Output,
    counts: Counts,
    /// Differences by kind.
    differences: BTreeMap<&'static str, u64>,
    reader_is_gone: bool,
    is_seen: bool,
    start: Instant,
    /// Revisions compared before `start`.
    began_with: u64,
    /// The number of the source's changes to compare, if it reports them and the progress is shown.
    expected: Option<u64>,
}

impl<'a> Report<'a> {
    fn new(how: &'a Comparing) -> Self {
        Self {
            json: how.json,
            one_of: how.one_of.as_deref(),
            output: Output::standard(),
            counts: Counts::default(),
            differences: BTreeMap::new(),
            reader_is_gone: false,
            is_seen: io::stderr().is_terminal(),
            start: Instant::now(),
            began_with: 0,
            expected: None,
        }
    }

    /// Counts and prints a step's findings.
    fn step(&mut self, step: &Step) -> CliResult<ControlFlow<()>> {
        self.counts += step.counts;
        if self.is_seen {
            clear_line();
        }
        let mut lines = String::new();
        for difference in &step.differences {
            *self.differences.entry(difference.kind()).or_default() += 1;
            lines += &json_or(self.json, difference, || format!("{difference}\n"));
        }
        if self.one_of.is_none() && !lines.is_empty() && self.output.write(&lines)?.is_break() {
            self.reader_is_gone = true;
            return Ok(ControlFlow::Break(()));
        }
        if self.is_seen {
            draw_line(&self.line());
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the progress as a line.
    fn line(&self) -> String {
        let compared = self.counts.revisions;
        let done = compared - self.began_with;
        let differences: u64 = self.differences.values().sum();
        let rate = per_second(done, self.start.elapsed());
        let found = count(differences, "difference");
        let mut line = format!("{compared} revisions compared, {rate:.0}/s, {found}");
        if let Some(left) = self.expected.map(|all| all.saturating_sub(done)) {
            #[expect(clippy::cast_precision_loss, reason = "a guess anyway")]
            let left = left as f64 / rate;
            if left.is_finite() {
                let _ = write!(line, ", about {}", duration(left));
            }
        }
        line
    }

    /// Prints the summary, and returns whether the target lacks nothing.
    ///
    /// # Errors
    /// The target of a single replication lacks something.
    fn end(mut self) -> CliResult<bool> {
        let total: u64 = self.differences.values().sum();
        let text = if self.json {
            let mut sum = json!(self.counts);
            sum["differences"] = json!(self.differences);
            if let Some(document) = self.one_of {
                sum["document"] = document.into();
            }
            format!("{sum}\n")
        } else {
            let document = self.one_of.map(printable);
            let document = document.map_or_else(String::new, |document| format!("{document}: "));
            document + &self.summary(total)
        };
        let _ = self.output.write(text)?;
        match total {
            0 => Ok(true),
            _ if self.one_of.is_some() => Ok(false),
            _ => Err(CliError::new(
                Exit::Data,
                format!(
                    "the target differs from the source in {}",
                    count(total, "place")
                ),
                "to copy what is missing, replicate without checkpoints: --no-checkpoints",
            )),
        }
    }

    fn summary(&self, total: u64) -> String {
        let Counts {
            revisions,
            filtered,
            changed,
            attachments,
            bytes,
        } = self.counts;
        let outcome = match total {
            0 => "the target holds everything",
            _ => "the target does not hold everything",
        };
        let revisions = count(revisions, "revision");
        let attachments = count(attachments, "attachment");
        let mut text = format!("{outcome}: {revisions}, {attachments}");
        if bytes > 0 {
            let _ = write!(text, " ({bytes} bytes)");
        }
        text.push_str(" compared");
        for (some, what) in [(filtered, "filtered"), (changed, "changed meanwhile")] {
            if some > 0 {
                let _ = write!(text, ", {some} {what}");
            }
        }
        for (kind, some) in &self.differences {
            let _ = write!(text, ", {some} {kind}");
        }
        text.push('\n');
        text
    }
}
