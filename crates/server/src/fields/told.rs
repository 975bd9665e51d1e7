//! Fields that are taken though they ask for nothing here: the answer's header tells their names.

use std::cell::RefCell;
use std::future::Future;

use serde_json::Value as Json;

use crate::error::{ApiError, Result};

/// The most names that one answer tells.
const MOST: usize = 32;
/// The most fields of one object that no table knows, however empty they are.
const MOST_UNKNOWN: usize = 64;
/// The longest part of a name that is told, in bytes.
const LONGEST: usize = 100;

tokio::task_local! {
    static TOLD: RefCell<Told>;
}

/// A request's fields that ask for nothing, and how it is held to the others.
#[derive(Debug, Default)]
struct Told {
    is_strict: bool,
    names: Vec<String>,
}

/// Runs `work` for one request, and returns with its output the names of the fields that it took
/// though they ask for nothing. Where `is_strict`, it refuses those that no protocol's own
/// documentation calls neutral.
pub async fn telling<F: Future>(is_strict: bool, work: F) -> (F::Output, Vec<String>) {
    let told = RefCell::new(Told { is_strict, names: Vec::new() });
    TOLD.scope(told, async {
        let output = work.await;
        let names = TOLD.with(|told| std::mem::take(&mut told.borrow_mut().names));
        (output, names)
    })
    .await
}

/// Tells that the field at `path` is taken and asks for nothing.
pub fn tell(path: &str) {
    let name = without_places(path);
    let add = |told: &RefCell<Told>| {
        let names = &mut told.borrow_mut().names;
        if names.len() < MOST && !names.contains(&name) {
            names.push(name);
        }
    };
    // Outside of a request nobody hears of it.
    let _ = TOLD.try_with(add);
}

/// Takes the field at `path`, which asks for nothing here because of `reason`.
///
/// # Errors
/// The server holds requests to the fields that it honours.
pub fn take_hint(path: &str, reason: &str) -> Result<()> {
    match is_strict() {
        true => Err(ApiError::unsupported(path, reason)),
        false => {
            tell(path);
            Ok(())
        }
    }
}

/// The fields of one object that no table knows.
#[derive(Debug, Default)]
pub struct Unknown {
    count: usize,
}

impl Unknown {
    /// Takes the field at `path` where its `value` is an empty one: that asks for nothing, whatever
    /// the field means.
    ///
    /// # Errors
    /// The value is not empty, the object has too many of them, or the server holds requests to the
    /// fields that it knows.
    pub fn take(&mut self, path: String, value: &Json) -> Result<()> {
        self.count += 1;
        // `false` turns something off that may be on where it is known.
        let asks_nothing = is_empty(value) && *value != Json::Bool(false) && !is_strict();
        if self.count > MOST_UNKNOWN || !(value.is_null() || asks_nothing) {
            return Err(ApiError::unknown_field(path));
        }
        if !value.is_null() {
            tell(&path);
        }
        Ok(())
    }
}

/// Returns true where requests are held to the fields that are honoured.
pub fn is_strict() -> bool {
    TOLD.try_with(|told| told.borrow().is_strict).unwrap_or_default()
}

/// Returns true for null, false, and texts, arrays and objects that hold nothing.
pub fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::Bool(true) | Json::Number(_) => false,
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(fields) => fields.values().all(Json::is_null),
    }
}

/// `path` as a header tells it: without numbers of places, so that it is the same for each message,
/// and in the characters that headers have.
fn without_places(path: &str) -> String {
    let mut name = String::new();
    let mut inside = false;
    for letter in path.chars() {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside && letter.is_ascii_digit() => continue,
            _ => {}
        }
        if name.len() == LONGEST {
            break;
        }
        name.push(if letter.is_ascii_graphic() && letter != ',' { letter } else { '?' });
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{LONGEST, MOST, MOST_UNKNOWN, Unknown, take_hint, tell, telling};

    fn block_on<F: Future>(work: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn each_name_is_told_once_and_in_bounds() {
        let ((), names) = block_on(telling(false, async {
            tell("messages[0].id");
            tell("messages[1].id");
            tell("a,\u{e4}[x]");
            tell(&"b".repeat(2 * LONGEST));
            (0..2 * MOST).for_each(|index| tell(&format!("c{index}")));
        }));
        assert_eq!(names[..2], ["messages[].id", "a??[x]"]);
        assert_eq!((names[2].len(), names.len()), (LONGEST, MOST));
    }

    #[test]
    fn of_unknown_fields_empty_ones_are_taken() {
        let take = |is_strict, value| {
            let take = async { Unknown::default().take("x".to_owned(), &value).is_ok() };
            block_on(telling(is_strict, take)).0
        };
        for value in [json!(""), json!([]), json!({"a": null})] {
            assert!(take(false, value.clone()) && !take(true, value));
        }
        for value in
            [json!(false), json!(true), json!(0), json!("a"), json!([null]), json!({"a": 1})]
        {
            assert!(!take(false, value));
        }
        assert!(take(false, json!(null)) && take(true, json!(null)));
        let mut unknown = Unknown::default();
        let mut take = || unknown.take("x".to_owned(), &json!(null));
        assert!((0..MOST_UNKNOWN).all(|_| take().is_ok()));
        assert!(take().is_err());
    }

    #[test]
    fn hints_are_refused_where_the_server_is_strict() {
        let hint = |is_strict| {
            block_on(telling(is_strict, async { take_hint("priority", "there is one queue") }))
        };
        let (taken, names) = hint(false);
        assert!(taken.is_ok() && names == ["priority"]);
        let (refused, names) = hint(true);
        assert_eq!(refused.unwrap_err().param.as_deref(), Some("priority"));
        assert!(names.is_empty());
        assert!(take_hint("priority", "outside of a request").is_ok());
    }
}
