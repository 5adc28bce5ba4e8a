//! `settee man`: writes the manual pages, which packages install.
//!
//! SUMMARY   Generates `settee.1` and a page for each command from the source of `--help`, and `settee.toml.5` from
//!           docs/configuration.md.
//! PROMISES  Pages contain no date and nothing machine-specific: the output is reproducible.

mod markdown;

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::exit::{CliResult, IoAt};

/// The source of the configuration's page; tests compare its tables with the keys.
const CONFIGURATION: &str = include_str!("../../docs/configuration.md");

/// The name of the manual, shown at the top of each page.
const MANUAL: &str = "Settee";

/// The program that the pages describe.
const SOURCE: &str = concat!("settee ", env!("CARGO_PKG_VERSION"));

/// No date; not empty, or the next argument would be taken for it.
const NO_DATE: &str = " ";

/// Options of `settee man`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   the pages were written
  64  the command line is wrong
  74  writing failed

Example:
  settee man /usr/local/share/man")]
pub struct Args {
    /// The folder of the manual; the pages go into man1 and man5 below it.
    folder: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// A failure to write.
pub(super) fn run(args: &Args) -> CliResult {
    let mut command = super::Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages).io_at("a page")?;
    let name = "man5/settee.toml.5".to_owned();
    pages.push((name, configuration_page().render()));
    for (name, text) in pages {
        let path = args.folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))
            .and_then(|()| fs::write(&path, &text))
            .io_at(path.display())?;
    }
    Ok(())
}

/// Adds the pages of a command and its subcommands, by file name.
fn add_pages(command: &clap::Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let file = man.get_filename();
    let title = file.trim_end_matches(".1").to_uppercase();
    let man = man.title(title).date(NO_DATE).source(SOURCE).manual(MANUAL);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    let help = command
        .get_after_long_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let blocks = || help.split("\n\n");
    for block in blocks().filter(|block| heading(block).is_none()) {
        let mut text = Roff::new();
        text.control("PP", []).text([roman(block)]);
        text.to_writer(&mut page)?;
    }
    if command.get_arguments().any(|option| !option.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    let commands = || {
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
    };
    if commands().next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    for (heading, lines) in blocks().filter_map(heading) {
        let mut section = Roff::new();
        section.control("SH", [&*heading.to_uppercase()]);
        preformatted(&mut section, lines.lines());
        section.to_writer(&mut page)?;
    }
    see_also(&file).to_writer(&mut page)?;
    pages.push((
        format!("man1/{file}"),
        String::from_utf8_lossy(&page).into_owned(),
    ));
    for below in commands() {
        add_pages(below, pages)?;
    }
    Ok(())
}

/// Splits a help block such as `Exit codes:` with indented lines into its heading and the lines.
fn heading(block: &str) -> Option<(&str, &str)> {
    let (first, lines) = block.split_once('\n')?;
    let heading = first.strip_suffix(':')?;
    lines.starts_with("  ").then_some((heading, lines))
}

/// Adds preformatted lines.
fn preformatted<'a>(page: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    page.control("nf", []);
    for line in lines {
        page.text([roman(line)]);
    }
    page.control("fi", []);
}

fn see_also(file: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["SEE ALSO"]);
    if file != "settee.1" {
        section.text([bold("settee"), roman("(1),")]);
    }
    section.text([bold("settee.toml"), roman("(5)")]);
    section
}

fn configuration_page() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["SETTEE.TOML", "5", NO_DATE, SOURCE, MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman("settee.toml - the configuration of settee")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold(crate::config::USUAL_FILE)]);
    page.control("SH", ["DESCRIPTION"]);
    markdown::add(&mut page, CONFIGURATION);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("settee"), roman("(1),")]);
    page.text([bold("settee-check-config"), roman("(1)")]);
    page
}
