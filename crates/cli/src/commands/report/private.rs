//! Words that a report does not tell: names of the user, of the host and of folders.
//!
//! Names are taken out of texts of others alone, such as what a process said: a user may have a
//! name that the report itself says, such as `demo`.

use std::env;
use std::process::Command;

use serde_json::Value;

/// Words of systems and devices, which tell of nobody.
const PUBLIC: [&str; 8] = ["root", "user", "metal", "cuda", "cpu", "mlx", "ours", "localhost"];
/// The shortest name that is looked for.
const SHORTEST: usize = 3;
/// Files that tell of nobody: those of all models, and of this program.
const FILES: [&str; 22] = [
    "adapter_config.json",
    "adapters.safetensors",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "libmlx.dylib",
    "libmlx.so",
    "libmlxc.dylib",
    "libmlxc.so",
    "merges.txt",
    "ml",
    "mlx.metallib",
    "model.safetensors",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "processor_config.json",
    "python3",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
];
/// Ends of the names of files with code, such as those that a panic names.
const CODE: [&str; 7] = [".rs", ".cpp", ".h", ".cu", ".cuh", ".metal", ".mm"];

/// Names that are taken out of texts.
pub struct Private {
    home: Option<String>,
    names: Vec<String>,
}

impl Private {
    /// Those of this user and this host.
    pub fn here() -> Private {
        let variable = |name| env::var(name).ok().filter(|value: &String| value.len() > 1);
        let host = Command::new("uname").arg("-n").output().ok();
        let host = host.and_then(|output| String::from_utf8(output.stdout).ok());
        let host = host.map(|name| name.trim().to_owned()).unwrap_or_default();
        let short = host.split('.').next().unwrap_or_default().to_owned();
        let users = ["USER", "LOGNAME"].into_iter().filter_map(variable);
        Private::of(variable("HOME"), users.chain([host, short]))
    }

    /// Those of a user with this home and of these names.
    pub fn of(home: Option<String>, names: impl IntoIterator<Item = String>) -> Private {
        let is_private = |name: &String| name.len() >= SHORTEST && !PUBLIC.contains(&&**name);
        let mut names: Vec<String> = names.into_iter().filter(is_private).collect();
        // The longer one first: a host's name with its domain.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let home = home.map(|home| home.trim_end_matches('/').to_owned());
        Private { home: home.filter(|home| !home.is_empty()), names }
    }

    /// Takes them out of each text of `value`, which is another's; keys stay.
    pub fn clean(&self, value: &mut Value) {
        texts(value, &|text| self.without(text));
    }

    /// `text`, which is another's, without them.
    pub fn without(&self, text: &str) -> String {
        let text = match &self.home {
            Some(home) => without_word(text, home, "~"),
            None => text.to_owned(),
        };
        let text = without_folders(&text);
        self.names.iter().fold(text, |text, name| without_word(&text, name, "…"))
    }
}

/// Takes folders out of each text of `value`.
pub fn clean_folders(value: &mut Value) {
    texts(value, &without_folders);
}

fn texts(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(all) => all.iter_mut().for_each(|value| texts(value, change)),
        Value::Object(all) => all.values_mut().for_each(|value| texts(value, change)),
        _ => {}
    }
}

/// `text` with `…` in place of paths from the root or from a home on. One whose file is of
/// [`FILES`] or [`CODE`] is `…/file`. Names of folders may have spaces, so that a path goes on to
/// the next quote, colon or line.
pub fn without_folders(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        out.push_str(before);
        let is_path = begins_path(&out) && path[1..].starts_with(|c: char| !c.is_whitespace());
        if !is_path {
            out.push('/');
            rest = &path[1..];
            continue;
        }
        out.truncate(start_of_path(&out));
        let end = end_of_path(path);
        out.push('…');
        let (_, last) = path[..end].rsplit_once('/').unwrap_or_default();
        let word = last.split(|c: char| c.is_whitespace() || ",;()[]{}<>".contains(c)).next();
        let file = word.filter(|file| is_public(file)).unwrap_or_default();
        if !file.is_empty() {
            out.push('/');
            out.push_str(file);
        }
        // Behind a file's name stand words of the text.
        rest = match file {
            "" => &path[end..],
            file => &path[end - last.len() + file.len()..],
        };
    }
    out + rest
}

fn is_public(file: &str) -> bool {
    FILES.contains(&file) || CODE.iter().any(|end| file.ends_with(end))
}

/// Returns true where a `/` behind `before` begins a path: not within a word, unless that is an
/// option of one letter or a user's home.
fn begins_path(before: &str) -> bool {
    if !before.ends_with(char::is_alphanumeric) {
        return true;
    }
    let word = before.rsplit(|c: char| c.is_whitespace() || "\"'`=,:;()[]{}<>".contains(c)).next();
    let word = word.unwrap_or_default();
    let is_option = word.starts_with('-') && word.chars().count() == 2;
    is_option || word.starts_with('~')
}

/// The place where the signs begin that belong to a path whose first `/` is behind `before`: `~ada`
/// or `..`.
fn start_of_path(before: &str) -> usize {
    let signs = before.trim_end_matches(['.', '…', '~']).len();
    let word = before.trim_end_matches(|c: char| c.is_alphanumeric() || "-_.".contains(c));
    if word.ends_with('~') { word.len() - 1 } else { signs }
}

/// The end of `path`: a quote, a colon or a line's end. A name may have an apostrophe.
fn end_of_path(path: &str) -> usize {
    let mut letters = path.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let in_word = letters.peek().is_some_and(|(_, next)| next.is_alphanumeric());
        let is_end = "\"`:\n\r".contains(letter) || (letter == '\'' && !in_word);
        if is_end {
            return at;
        }
    }
    path.len()
}

/// `text` with `other` in place of `word` where that stands by itself.
fn without_word(text: &str, word: &str, other: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_part = |letter: Option<char>| {
            letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
        };
        let before_it = before.chars().next_back().or_else(|| out.chars().next_back());
        out.push_str(before);
        let stands = !is_part(before_it) && !is_part(after.chars().next());
        out.push_str(if stands { other } else { word });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Private, clean_folders};

    fn private() -> Private {
        let names = ["ada", "ada-mac.local", "ada-mac", "metal", "ab", "root"].map(String::from);
        Private::of(Some("/Users/ada".into()), names)
    }

    #[test]
    fn names_and_folders_are_taken_out() {
        let cases = [
            ("no file /Users/ada/models/Qwen3/config.json: gone", "no file …/config.json: gone"),
            ("`/Users/ada`: no folder", "`~`: no folder"),
            ("at /opt/b/libmlx.dylib, then", "at …/libmlx.dylib, then"),
            ("host ada-mac.local or ada-mac of ada", "host … or … of …"),
            ("/home/ada", "…"),
            ("HF_HUB_CACHE=/srv/acme/secret", "HF_HUB_CACHE=…"),
            ("ld -L/opt/acme/lib", "ld -L…"),
            ("`~/My Models/Acme Secret/x`: gone", "`…`: gone"),
            ("/Users/ada/My Models/Acme Secret/x", "…"),
            ("\"/srv/Bob's models/secret\" and 2", "\"…\" and 2"),
            ("/home/otheruser: denied", "…: denied"),
            ("/Users/adams/x: denied", "…: denied"),
            ("~grace/x: denied", "…: denied"),
            ("at ../acme/x\nthen", "at …\nthen"),
            ("file:///srv/a, https://host.acme/b", "file:…:…"),
            ("/srv/a:/srv/b", "…:…"),
            ("at /b/mlx/device.cpp:12: no", "at …/device.cpp:12: no"),
            ("/srv/acme/secret.json: gone", "…: gone"),
            (
                "an adapter, 5 tokens/s on metal, f16/bf16 ~ 2 / 3",
                "an adapter, 5 tokens/s on metal, f16/bf16 ~ 2 / 3",
            ),
            ("as root on cab, ada_lovelace", "as root on cab, ada_lovelace"),
        ];
        for (text, expected) in cases {
            let cleaned = private().without(text);
            assert_eq!(cleaned, expected, "{text}");
            assert_eq!(private().without(&cleaned), expected, "{text} once more");
        }
    }

    #[test]
    fn all_texts_of_another_are_cleaned_and_their_keys_stay() {
        let mut value = json!({"a": ["/Users/ada/x", 1], "ada": {"c": "ada", "d": null}});
        private().clean(&mut value);
        assert_eq!(value, json!({"a": ["…", 1], "ada": {"c": "…", "d": null}}));
    }

    #[test]
    fn words_of_the_report_itself_stay_where_folders_go() {
        let mut value = json!({"network": "ada", "what": "ada on cpu: /srv/x"});
        clean_folders(&mut value);
        assert_eq!(value, json!({"network": "ada", "what": "ada on cpu: …"}));
    }
}
