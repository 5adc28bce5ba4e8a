//! The pages generated from the declarations: `config/default.toml` and the tables of `docs/configuration.md`.
//!
//! SUMMARY   [`default_file`] is the built-in configuration, which the program also starts from. Only tests need the
//!           tables.
//! CALLED    A test compares the files with them, and rewrites the files if `WRITE_PAGES` is set.

use std::fmt::Write;

use super::keys::{SECTIONS, Section};
use super::section::Key;

/// Maximum length of a comment's line, in characters.
const COMMENT_MAX: usize = 110;

/// The head of the file.
const HEAD: &str = "\
# Settee's built-in defaults: there are no other keys.
#
# Generated from crates/config. Copy what you want to change into a file of your own and name it with
# `settee serve -c FILE`, or use /etc/settee/settee.toml, which is read without -c; `settee check-config`
# shows every value and its origin. See docs/configuration.md.
#
# A plain number is in the unit in parentheses. Durations may also be written \"250ms\", \"5s\",
# \"2min\", \"1h\"; sizes \"64KiB\", \"64MiB\", \"1GiB\" (or the decimal \"64kB\", \"64MB\", \"1GB\").
# Lists may also be one string with commas. Port 0 is any free one.
# (now) can be changed while the service runs; (start) needs a restart.
";

/// Returns the built-in configuration as a TOML file, with a comment for each key.
pub fn default_file() -> String {
    let mut file = HEAD.to_owned();
    for section in SECTIONS {
        file.push('\n');
        add_section(&mut file, section);
    }
    file
}

fn add_section(file: &mut String, section: &Section) {
    let keys: Vec<&Key> = section.rows().collect();
    // A section of a family, and one without its own keys, is a comment.
    let name = section.name;
    let heading = match (section.is_family, keys.is_empty()) {
        (true, _) => format!("# [{name}.NAME]\n"),
        (_, true) => format!("# [{name}]\n"),
        _ => format!("[{name}]\n"),
    };
    file.push_str(&heading);
    add_comment(file, section.about);
    if section.is_family {
        let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
        return add_comment(
            file,
            &format!("Keys: {}. See docs/configuration.md.", names.join(", ")),
        );
    }
    for key in keys {
        let unit = match key.unit_name() {
            "" => String::new(),
            unit => format!("{unit}, "),
        };
        let change = if key.runtime { "now" } else { "start" };
        add_comment(file, &format!("{} ({unit}{change})", key.plain_sentence()));
        let default = key.default.unwrap_or("\"\"");
        let _ = writeln!(file, "{} = {default}", key.name);
    }
}

/// Appends a comment, wrapped.
fn add_comment(file: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > COMMENT_MAX {
            let _ = writeln!(file, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(file, "#{line}");
    }
}

impl Key {
    /// Returns its description without links, code marks and bold.
    pub fn plain_sentence(&self) -> String {
        let mut text = self.sentence().to_owned();
        // Of a link, `[TEXT](TARGET)`, the text remains.
        while let Some(middle) = text.find("](")
            && let Some(start) = text[..middle].rfind('[')
            && let Some(length) = text[middle..].find(')')
        {
            text.replace_range(middle..=middle + length, "");
            text.remove(start);
        }
        text.replace('`', "").replace("**", "")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Compares a file of the project with its expected content, or rewrites it.
    fn hold(path: &str, wanted: impl FnOnce(&str) -> String) {
        let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path);
        let found = fs::read_to_string(&path).unwrap();
        let wanted = wanted(&found);
        if std::env::var_os("WRITE_PAGES").is_some() {
            return fs::write(&path, wanted).unwrap();
        }
        let path = path.display();
        let help = "run `WRITE_PAGES=1 cargo test -p settee-config pages`";
        assert!(
            found == wanted,
            "{path} does not match the declarations: {help}"
        );
    }

    /// Returns the key table of a section or a family; empty if it has no keys.
    fn key_table(section: &Section) -> String {
        let mut table = String::new();
        // The keys of cells are listed once, in the section for all pools.
        let own = section.keys.len();
        let listed = if section.is_family { own } else { usize::MAX };
        for key in section.rows().take(listed) {
            if table.is_empty() {
                table.push_str("| key | default | meaning |\n|---|---|---|\n");
            }
            let default = match default_shown(key) {
                text if text.is_empty() => text,
                text => format!(" {text}"),
            };
            let restart = if key.runtime { "" } else { " Needs a restart." };
            let (name, sentence) = (key.name, key.sentence());
            let _ = writeln!(table, "| `{name}` |{default} | {sentence}{restart} |");
        }
        table
    }

    /// Returns a key's default and unit; a count's default that is a word has no unit.
    fn default_shown(key: &Key) -> String {
        let default = key.otherwise.or(key.default).unwrap_or_default();
        let is_number = default.parse::<f64>().is_ok();
        match (key.unit_name(), key.unit) {
            ("", _) => default.to_owned(),
            (unit, _) if is_number => format!("{default} {unit}"),
            (unit, None) => format!("{default} ({unit})"),
            (_, Some(_)) => default.to_owned(),
        }
    }

    #[test]
    fn the_default_file_is_generated_from_the_declarations() {
        hold("config/default.toml", |_| default_file());
    }

    #[test]
    fn the_page_has_the_table_of_each_section() {
        hold("docs/configuration.md", |page| {
            let mut page = page.to_owned();
            for section in SECTIONS {
                let family = if section.is_family { ".NAME" } else { "" };
                let heading = format!("\n### [{}{family}]\n", section.name);
                let (before, after) = page
                    .split_once(&heading)
                    .expect("each section has its part");
                let table = key_table(section);
                let is_row = |line: &&str| line.starts_with("| ") || line.starts_with("|--");
                let (body, rest) = match after
                    .find("\n## ")
                    .into_iter()
                    .chain(after.find("\n### "))
                    .min()
                {
                    Some(end) => after.split_at(end),
                    None => (after, ""),
                };
                // The table keeps its place; a part without one gets it appended.
                let lines: Vec<&str> = body.split_inclusive('\n').collect();
                let at = lines.iter().position(is_row).unwrap_or(lines.len());
                let others = lines[at..].iter().filter(|line| !is_row(line)).copied();
                let body: String = lines[..at]
                    .iter()
                    .copied()
                    .chain([&*table])
                    .chain(others)
                    .collect();
                page = format!("{before}{heading}{body}{rest}");
            }
            page
        });
    }

    #[test]
    fn every_key_has_a_sentence() {
        for key in SECTIONS.iter().flat_map(Section::rows) {
            assert!(key.sentence().ends_with('.'), "{}: a sentence", key.name);
        }
    }
}
