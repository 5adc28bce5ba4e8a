//! Differences between target and source, as reported by a verification.

use std::fmt;

use json::shown::is_unprintable;
use serde::{Deserialize, Serialize};

use super::Leaf;
use crate::refused::RefusedDoc;

/// One difference between target and source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "difference", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Difference {
    /// The target does not have the revision.
    Missing(Leaf),
    /// The target lacks the document because it refused it, or because the document's id is too long or invalid.
    Refused(RefusedDoc),
    /// The target knows the revision but does not send it.
    Unreadable(Leaf),
    /// The target has the revision without the attachment.
    #[strum(serialize = "attachment missing")]
    AttachmentMissing {
        #[serde(flatten)]
        leaf: Leaf,
        name: String,
    },
    /// The target has a different attachment of that name.
    #[strum(serialize = "attachment differs")]
    AttachmentDiffers {
        #[serde(flatten)]
        leaf: Leaf,
        name: String,
        /// The difference, as text.
        how: String,
    },
}

impl Difference {
    /// Returns the kind of difference, in lower-case words.
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Difference {
    /// Writes one line: unprintable characters in ids and names become spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        let mut part = |text: &str| write!(f, " {}", text.replace(is_unprintable, " "));
        match self {
            Self::Missing(leaf) | Self::Unreadable(leaf) => {
                part(&leaf.id)?;
                part(&leaf.rev)
            }
            Self::Refused(doc) => {
                part(&doc.id)?;
                part(doc.rev.as_deref().unwrap_or("-"))?;
                part(&format!("({}: {})", doc.error, doc.reason))
            }
            Self::AttachmentMissing { leaf, name } => {
                part(&leaf.id)?;
                part(&leaf.rev)?;
                part(name)
            }
            Self::AttachmentDiffers { leaf, name, how } => {
                part(&leaf.id)?;
                part(&leaf.rev)?;
                part(name)?;
                part(&format!("({how})"))
            }
        }
    }
}
