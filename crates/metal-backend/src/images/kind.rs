//! The pipelines that can be loaded.

use super::edit::Style;

/// A pipeline that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ZImage,
    Qwen(Style),
}

/// The pipelines by their `_class_name`.
pub(super) const KINDS: [(&str, Kind); 4] = [
    ("ZImagePipeline", Kind::ZImage),
    ("QwenImagePipeline", Kind::Qwen(Style::Plain)),
    ("QwenImageEditPipeline", Kind::Qwen(Style::Edit)),
    ("QwenImageEditPlusPipeline", Kind::Qwen(Style::EditPlus)),
];

impl Kind {
    /// The class of diffusers.
    pub fn class(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}
