//! Which model a request's name means.

use super::models::{Entry, Makes};
use crate::error::{ApiError, Result};

/// How many names an error proposes.
const PROPOSED: usize = 3;

/// The part of an unknown name that is compared and told, in bytes.
const LONGEST: usize = 256;

/// The models by their names.
#[derive(Clone, Debug)]
pub struct Names {
    known: Vec<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    index: usize,
    name: String,
    aliases: Vec<String>,
    makes: Makes,
}

impl Names {
    /// The names of `entries`.
    pub fn new(entries: &[Entry]) -> Names {
        let mut names = Names { known: Vec::new() };
        entries.iter().enumerate().for_each(|(index, entry)| names.add(index, entry));
        names
    }

    /// From now on `entry` has this number.
    pub fn add(&mut self, index: usize, entry: &Entry) {
        self.known.push(Known {
            index,
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            makes: entry.makes,
        });
    }

    /// From now on no name means the model of this number.
    pub fn remove(&mut self, index: usize) {
        self.known.retain(|known| known.index != index);
    }

    /// The further names of the model that is served as `name`.
    pub fn aliases(&self, name: &str) -> Vec<String> {
        let known = self.known.iter().find(|known| known.name == name);
        known.map_or_else(Vec::new, |known| known.aliases.clone())
    }

    /// The number of the model called `name`, whatever it makes.
    pub fn get(&self, name: &str) -> Option<usize> {
        let kinds = [
            Makes::Text,
            Makes::Pictures,
            Makes::Vectors,
            Makes::Scores,
            Makes::Transcripts,
            Makes::Speech,
        ];
        kinds.into_iter().find_map(|makes| self.called(name, makes))
    }

    /// The name that `asked` means where clients put `:latest` behind names that have no tag: the
    /// one before the tag, where a model is called so and none has the tag in its name. `*`
    /// does not count.
    pub fn untagged<'a>(&self, asked: &'a str) -> &'a str {
        let has = |name: &str| {
            let is_alias = |known: &Known| known.aliases.iter().any(|alias| alias == name);
            let is_called = |known: &Known| known.name == name || name != "*" && is_alias(known);
            self.known.iter().any(is_called)
        };
        match asked.strip_suffix(":latest") {
            Some(name) if !has(asked) && has(name) => name,
            _ => asked,
        }
    }

    /// The number of the model that makes `makes` and is meant by `asked`; the only one of its kind
    /// where no name is given.
    ///
    /// # Errors
    /// 404 for a name that no model of that kind has; 400 where there are several and none is
    /// named.
    pub fn find(&self, asked: Option<&str>, makes: Makes) -> Result<usize> {
        self.check(makes)?;
        let Some(name) = asked else { return self.only(makes) };
        let found = self.called(name, makes);
        found.ok_or_else(|| match self.known.iter().find(|known| known.name == name) {
            Some(known) => {
                let does = match known.makes {
                    Makes::Text => "answers in text alone",
                    Makes::Pictures => "makes pictures: ask /v1/images/generations",
                    Makes::Vectors => "makes vectors of texts: ask /v1/embeddings",
                    Makes::Scores => "scores documents: ask /v1/rerank",
                    Makes::Transcripts => "transcribes speech: ask /v1/audio/transcriptions",
                    Makes::Speech => "speaks: ask /v1/audio/speech",
                };
                ApiError::no_model(format!("the model `{name}` {does}"))
            }
            None => self.not_found(name, Some(makes)),
        })
    }

    /// Checks that there is a model of the kind `makes`.
    ///
    /// # Errors
    /// 400: none does.
    pub fn check(&self, makes: Makes) -> Result<()> {
        match (self.of(makes).next(), makes) {
            (Some(_), _) => Ok(()),
            (None, Makes::Pictures) => {
                let reason =
                    "this server makes no pictures: start it with `ml serve --image-model DIR`";
                Err(ApiError::unsupported("model", reason))
            }
            (None, Makes::Text) => {
                let reason = "this server has no model that answers in text";
                Err(ApiError::unsupported("model", reason))
            }
            (None, Makes::Vectors) => {
                let reason = "this server has no model that embeds texts: start it with `ml serve --embedding-model MODEL`";
                Err(ApiError::unsupported("model", reason))
            }
            (None, Makes::Transcripts) => {
                let reason = "this server has no model that transcribes speech: start it with `ml serve --transcription-model MODEL`";
                Err(ApiError::unsupported("model", reason))
            }
            (None, Makes::Speech) => {
                let reason = "this server has no model that speaks: start it with `ml serve --speech-model MODEL`";
                Err(ApiError::unsupported("model", reason))
            }
            (None, Makes::Scores) => {
                let reason = "this server has no model that scores documents: start it with `ml serve --embedding-model RERANKER`";
                Err(ApiError::unsupported("model", reason))
            }
        }
    }

    /// By its own name, else by a further one, else by `*`.
    fn called(&self, name: &str, makes: Makes) -> Option<usize> {
        let first = |is: &dyn Fn(&Known) -> bool| {
            self.of(makes).find(|(_, known)| is(known)).map(|(index, _)| index)
        };
        let alias = |name: &str| first(&|known| known.aliases.iter().any(|alias| alias == name));
        first(&|known| known.name == name).or_else(|| alias(name)).or_else(|| alias("*"))
    }

    /// 404 for the name `asked`, with the nearest ones of what makes `makes`.
    pub fn not_found(&self, asked: &str, makes: Option<Makes>) -> ApiError {
        let asked = &asked[..asked.floor_char_boundary(LONGEST)];
        let mut names: Vec<&str> = match makes {
            Some(makes) => self.of(makes).map(|(_, known)| known.name.as_str()).collect(),
            None => self.known.iter().map(|known| known.name.as_str()).collect(),
        };
        let count = names.len();
        names.sort_by(|one, other| likeness(asked, other).total_cmp(&likeness(asked, one)));
        names.truncate(PROPOSED);
        ApiError::model_not_found(asked, &names, count)
    }

    fn only(&self, makes: Makes) -> Result<usize> {
        let names: Vec<_> = self.of(makes).map(|(_, known)| format!("`{}`", known.name)).collect();
        match (names.len(), self.of(makes).next()) {
            (1, Some((index, _))) => Ok(index),
            (count, _) => {
                let some = names[..count.min(PROPOSED)].join(", ");
                let reason = format!(
                    "is missing, and this server has {count} models, such as {some}: see /v1/models"
                );
                Err(ApiError::value("model", reason))
            }
        }
    }

    fn of(&self, makes: Makes) -> impl Iterator<Item = (usize, &Known)> {
        let of_kind = self.known.iter().filter(move |known| known.makes == makes);
        of_kind.map(|known| (known.index, known))
    }
}

/// How much two names are alike, from 0 to 1, whatever their case.
fn likeness(one: &str, other: &str) -> f64 {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    // A name's owner and its version are often left out.
    let part = if other.contains(&one) || one.contains(&other) { 1.0 } else { 0.0 };
    strsim::normalized_damerau_levenshtein(&one, &other).max(0.9 * part)
}

#[cfg(test)]
mod tests {
    use super::{Entry, Makes, Names};
    use crate::error::Kind;

    fn names() -> Names {
        let aliased = Entry { aliases: vec!["gpt-4".into()], ..Entry::text("owner/Qwen3-0.6B") };
        let image = Entry { makes: Makes::Pictures, ..Entry::text("z-image") };
        Names::new(&[aliased, Entry::text("gemma-3-4b"), image, Entry::text("fox")])
    }

    #[test]
    fn a_name_means_its_own_model_before_an_alias_does() {
        let mut entries = [Entry::text("a"), Entry::text("b")];
        entries[0].aliases = vec!["b".into(), "*".into()];
        let names = Names::new(&entries);
        assert_eq!(names.get("b"), Some(1));
        assert_eq!(names.get("anything"), Some(0));
    }

    #[test]
    fn a_tag_is_taken_off_where_no_model_has_the_name_with_it() {
        let mut entries = [Entry::text("a"), Entry::text("a:latest"), Entry::text("b")];
        entries[2].aliases = vec!["poet".into(), "*".into()];
        let names = Names::new(&entries);
        for (asked, expected) in [
            ("a:latest", "a:latest"),
            ("b:latest", "b"),
            ("poet:latest", "poet"),
            ("poet", "poet"),
            ("c:latest", "c:latest"),
            ("*:latest", "*:latest"),
        ] {
            assert_eq!(names.untagged(asked), expected);
        }
    }

    #[test]
    fn an_unknown_name_is_a_404_with_the_nearest_ones_first() {
        let error = names().find(Some("qwen3-0.6b"), Makes::Text).unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (Kind::NoModel, Some("model")));
        assert!(error.message.contains("`owner/Qwen3-0.6B`"), "{}", error.message);
        let error = names().find(Some("gemma-3-4"), Makes::Text).unwrap_err();
        let place = |name: &str| error.message.find(name).unwrap();
        assert!(place("gemma-3-4b") < place("owner/Qwen3-0.6B"), "{}", error.message);
        assert!(!error.message.contains("z-image"), "{}", error.message);
    }

    #[test]
    fn a_name_may_be_left_out_where_there_is_one_model_of_the_kind() {
        assert_eq!(names().find(None, Makes::Pictures).unwrap(), 2);
        let error = names().find(None, Makes::Text).unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (Kind::Value, Some("model")));
    }

    #[test]
    fn a_model_of_the_other_kind_is_told_from_one_that_is_not_there() {
        let kind = |name, makes| names().find(Some(name), makes).unwrap_err().kind;
        let message = |name, makes| names().find(Some(name), makes).unwrap_err().message;
        for (name, makes) in [("z-image", Makes::Text), ("fox", Makes::Pictures)] {
            assert_eq!(kind(name, makes), Kind::NoModel);
            assert!(!message(name, makes).contains("does not exist"), "{name}");
        }
        assert!(message("z-imag", Makes::Pictures).contains("does not exist"));
    }
}
