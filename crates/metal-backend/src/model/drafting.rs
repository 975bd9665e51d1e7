//! The vocabulary of a model that drafts.

use inference_core::{Error, Result};
use inference_text::Tokenizer;

use super::Text;
use crate::files::ModelFiles;

impl Text {
    /// Refuses a model that drafts where ids of its vocabulary mean other tokens. Added ones may
    /// differ: a draft with one of them is held against what is drawn, as all are.
    ///
    /// # Errors
    /// The first token that differs; a tokenizer that cannot be read.
    pub(super) fn check_drafting(&self, files: &ModelFiles) -> Result<()> {
        let other = Tokenizer::from_files(files).map_err(Error::from)?;
        let own = &self.tokenizer;
        let both = own.vocab_size().min(other.vocab_size()) as u32;
        let differs = |id: &u32| {
            !own.is_added(*id)
                && !other.is_added(*id)
                && own.id_to_token(*id) != other.id_to_token(*id)
        };
        let Some(id) = (0..both).find(differs) else { return Ok(()) };
        let [own, other] = [own, &other].map(|of| of.id_to_token(id).unwrap_or_default());
        let folder = files.folder();
        Err(Error::Unsupported {
            what: "draft_model".into(),
            reason: format!(
                "{} has another vocabulary: its token {id} is `{other}` and the model's `{own}`; take a model of the same family",
                folder.display()
            ),
        })
    }
}
