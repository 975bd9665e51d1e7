//! Grammars of arguments that are written property by property.

use serde_json::{Map, Value};

use super::{MarkIds, quoted, regex};
use crate::answer::tags::{Lines, Tags};
use crate::answer::typed::Kinds;

/// How a format writes properties.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// Between tags, strings as they are.
    Elements(&'static Tags),
    /// `KEY=VALUE`, separated by commas.
    Python,
    /// `KEY:VALUE`, separated by commas, strings between two of this.
    Gemma(&'static str),
}

impl Style {
    /// The marks that no value has.
    fn marks(self) -> Vec<&'static str> {
        match self {
            Style::Elements(tags) => vec![tags.value_end, tags.end, tags.key],
            Style::Python => Vec::new(),
            Style::Gemma(quote) => vec![quote],
        }
    }
}

/// The keywords of a root schema that is written property by property.
const ROOT: [&str; 10] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$defs",
    "definitions",
    "$schema",
    "$id",
];

/// The keywords of a string's schema that is written as it is.
const STRING: [&str; 11] = [
    "type",
    "enum",
    "const",
    "minLength",
    "maxLength",
    "title",
    "description",
    "default",
    "examples",
    "nullable",
    "$comment",
];

/// The rules of `args_INDEX`; `None` where `schema` says what they cannot hold.
pub fn rules(style: Style, index: usize, schema: &Value, ids: MarkIds) -> Option<String> {
    let fields = schema.as_object()?;
    if fields.keys().any(|key| !ROOT.contains(&key.as_str())) {
        return None;
    }
    let none = Map::new();
    let properties = match fields.get("properties") {
        Some(properties) => properties.as_object()?,
        None => &none,
    };
    let required: Vec<&str> = match fields.get("required") {
        Some(keys) => keys.as_array()?.iter().filter_map(Value::as_str).collect(),
        None => Vec::new(),
    };
    if required.iter().any(|key| !properties.contains_key(*key)) {
        return None;
    }
    // Anything may be given where nothing is said.
    if properties.is_empty() && fields.get("additionalProperties") != Some(&Value::Bool(false)) {
        return None;
    }
    // Where a text has the mark that ends it, only JSON holds it.
    let text = schema.to_string();
    if style.marks().into_iter().any(|mark| text.contains(quoted(mark).trim_matches('"'))) {
        return None;
    }
    let writer = Writer { style, index, root: schema, ids };
    let separator = match style {
        Style::Elements(_) => "",
        Style::Python => "\", \" ",
        Style::Gemma(_) => "\",\" ",
    };
    let mut rules = format!("args_{index}: first_{index}_0\n");
    for (at, (key, property)) in properties.iter().enumerate() {
        let next = at + 1;
        let optional = !required.contains(&key.as_str());
        let skip = |rule: &str| match optional {
            true => format!(" | {rule}_{index}_{next}"),
            false => String::new(),
        };
        rules += &format!(
            "first_{index}_{at}: field_{index}_{at} more_{index}_{next}{}\n\
             more_{index}_{at}: {separator}field_{index}_{at} more_{index}_{next}{}\n",
            skip("first"),
            skip("more")
        );
        rules += &writer.field(at, key, property)?;
    }
    let last = properties.len();
    rules += &format!("first_{index}_{last}: \"\"\nmore_{index}_{last}: \"\"\n");
    Some(rules)
}

struct Writer<'a> {
    style: Style,
    index: usize,
    root: &'a Value,
    ids: MarkIds<'a>,
}

impl Writer<'_> {
    /// The rule of one property.
    fn field(&self, at: usize, key: &str, property: &Value) -> Option<String> {
        let name = format!("{}_{at}", self.index);
        let value = format!("value_{name}");
        let (head, tail) = match self.style {
            Style::Elements(tags) => {
                let line = if tags.lines == Lines::Own { "\n" } else { "" };
                let head = format!("{}{key}{}{line}", tags.key, tags.value.join("\n"));
                (head, quoted("\n"))
            }
            Style::Python
                if key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
            {
                (format!("{key}="), String::new())
            }
            Style::Gemma(_) if !key.contains([':', '"', '}', '<']) => {
                (format!("{key}:"), String::new())
            }
            Style::Python | Style::Gemma(_) => return None,
        };
        let rule = format!("field_{name}: {} {value} {tail}\n", quoted(&head));
        Some(rule + &self.value(&name, property)?)
    }

    /// The rules of `value_NAME`, with the mark that ends it where the style has one.
    fn value(&self, name: &str, property: &Value) -> Option<String> {
        let target = property["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        let property = target.and_then(|path| self.root.pointer(path)).unwrap_or(property);
        let kinds = Kinds::of(self.root, property);
        let may = |kind| kinds.as_ref().is_none_or(|kinds| kinds.has(kind));
        let only = |kind| kinds.as_ref().is_some_and(|kinds| kinds.is_only(kind));
        match self.style {
            Style::Elements(tags) if only("string") || is_text_or_null(property) => {
                self.string(name, property, "", tags.value_end)
            }
            // What could be a string and something else is read as the latter.
            Style::Elements(_) if may("string") => None,
            Style::Elements(tags) => {
                let end = self.mark(tags.value_end);
                let line = if tags.lines == Lines::Own { " \"\\n\"" } else { "" };
                Some(format!(
                    "value_{name}: json_{name}{line} {end}\n{}",
                    self.json(name, property)?
                ))
            }
            Style::Python if only("boolean") && property.get("enum").is_none() => {
                Some(format!("value_{name}: \"True\" | \"False\"\n"))
            }
            Style::Gemma(quote) if only("string") => self.string(name, property, quote, quote),
            Style::Python | Style::Gemma(_) => {
                Some(format!("value_{name}: json_{name}\n{}", self.json(name, property)?))
            }
        }
    }

    /// A string as it is, between marks.
    fn string(&self, name: &str, property: &Value, open: &str, close: &str) -> Option<String> {
        let fields = property.as_object()?;
        let known = |key: &String| STRING.contains(&key.as_str()) || key == "anyOf";
        if !fields.keys().all(known) || fields.contains_key("anyOf") && !is_text_or_null(property) {
            return None;
        }
        let lines = matches!(self.style, Style::Elements(tags) if tags.lines == Lines::Own);
        let open = if open.is_empty() { String::new() } else { format!("{} ", self.mark(open)) };
        let one = fields.get("const").map(std::slice::from_ref);
        if let Some(values) =
            fields.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one)
        {
            let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(quoted).collect();
            let (line, close) = (if lines { "\"\\n\" " } else { "" }, self.mark(close));
            return Some(format!("value_{name}: {open}({}) {line}{close}\n", texts.join(" | ")));
        }
        let bound = |key| fields.get(key).and_then(Value::as_u64);
        let most = bound("maxLength").map_or(String::new(), |most| most.to_string());
        let body = match (bound("minLength").unwrap_or(0), most.is_empty()) {
            (0, true) => "(?s:.*)".to_owned(),
            (least, _) => {
                let line = if lines { "\\n?" } else { "" };
                format!("(?s:.{{{least},{most}}}){line}")
            }
        };
        let end = regex(close);
        Some(match (self.ids)(close) {
            Some(id) => format!(
                "value_{name}: {open}TEXT_{name} <[{id}]>\n\
                 TEXT_{name}: /{body}/ & ~/(?s:.*){end}(?s:.*)/\n"
            ),
            // As text, the mark's end is the first place where the value can end.
            None => format!("value_{name}: {open}text_{name}\ntext_{name}[lazy]: /{body}{end}/\n"),
        })
    }

    /// The rule `json_NAME`, whose references are those of the whole schema.
    fn json(&self, name: &str, property: &Value) -> Option<String> {
        let mut schema = match property {
            Value::Object(fields) => fields.clone(),
            _ => return None,
        };
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = self.root.get(key) {
                schema.entry(key).or_insert_with(|| definitions.clone());
            }
        }
        let schema = Value::Object(schema);
        refers_to_definitions(&schema).then(|| format!("json_{name}: %json {schema}\n"))
    }

    fn mark(&self, mark: &str) -> String {
        match (self.ids)(mark) {
            Some(id) => format!("<[{id}]>"),
            None => quoted(mark),
        }
    }
}

/// Returns true for a property that is any string or null, which are written alike.
fn is_text_or_null(property: &Value) -> bool {
    let word = |kind: &Value| kind == "string" || kind == "null";
    let plain = |part: &Value| {
        part.as_object()
            .is_some_and(|fields| fields.len() == 1 && fields.get("type").is_some_and(word))
    };
    let parts = |key: &str| property.get(key).and_then(Value::as_array);
    parts("type").is_some_and(|kinds| kinds.iter().all(word) && property.get("enum").is_none())
        || parts("anyOf").is_some_and(|parts| parts.iter().all(plain))
}

/// Returns true when all references lead to definitions, which stay where they are.
fn refers_to_definitions(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().all(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(path)) => {
                path.starts_with("#/$defs/") || path.starts_with("#/definitions/")
            }
            _ => refers_to_definitions(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_definitions),
        _ => true,
    }
}
