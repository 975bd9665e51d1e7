//! The forms that generated texts are held to, and the bound of their reasoning.

use crate::Value;

/// The form that the generated text must conform to, from its first character to its last.
///
/// A token that the text cannot go on with is never drawn, and an end-of-sequence id exactly where
/// the text may end. Where nothing else can follow, the generation ends as with the model's own end
/// of sequence. A stop string, `max_tokens` and a cancel token end a constrained text early, so it
/// conforms as far as it goes.
///
/// The model does not see the constraint: a prompt that asks for the same is answered better.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// JSON under a JSON schema, draft 4 to 2020-12 by its `$schema`, the latter without one. Keys
    /// come in the order of `properties`, then those that only `required` names, then any others.
    /// Between tokens there may be nothing, a space, or a line break with an indentation.
    ///
    /// A keyword of the draft that is not held is refused by name; one that the draft does not
    /// know is an annotation. Held are `type`, `enum`, `const`; `properties`, `required`,
    /// `additionalProperties`, `patternProperties` (whose patterns must not overlap),
    /// `minProperties`, `maxProperties`; `items`, `prefixItems`, `additionalItems`, `minItems`,
    /// `maxItems`; `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`;
    /// `minLength`, `maxLength`, `pattern`, `format`; `anyOf`, `allOf`, `oneOf` (whose alternatives
    /// must not overlap); `$ref` within the schema, recursive ones included. An object that lists
    /// `properties` has no others unless the schema speaks of them: small models go on with keys of
    /// their own where they may. Formats are
    /// `date-time`, `time`, `date`, `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `uuid`, `uri`
    /// and are held by their form alone: the 29th of February of any year is a date.
    JsonSchema(Value),
    /// A regular expression in the syntax of the crate `regex`, for the whole text; without
    /// look-around and back-references. A lazy quantifier allows what a greedy one does.
    Regex(String),
    /// A grammar in llguidance's variant of Lark: rules in lower case, terminals in upper case,
    /// the rule `start`, `%ignore`, `%json` with a schema, special tokens as `<|name|>`. Or one in
    /// llama.cpp's GBNF, which begins a rule with `::=` and has the rule `root`.
    Lark(String),
}

/// The marks around a model's reasoning, such as `<think>` and `</think>`.
///
/// If the prompt ends with the opening mark, or the text begins with it, all up to and with the
/// closing mark is free of the constraint. The generation cannot end there, but for `max_tokens`,
/// stop strings and a cancel token. Text behind the closing mark must conform, except for line
/// breaks right behind it.
///
/// A text that does not begin with the opening mark must conform from its beginning. So the same
/// options serve models that may reason or not. Both marks are part of the text where their tokens
/// are.
///
/// A mark begins with one of the model's added tokens, as all marks of chat templates do, and ends
/// with whole tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReasoningMarks {
    /// The mark that opens the reasoning.
    pub open: String,
    /// The mark that closes it.
    pub close: String,
}

/// A bound of the tokens that a model may reason with.
///
/// They are counted from behind the opening mark, which the prompt ends with or the text begins
/// with. After so many, the closing mark is forced. What a `constraint` has no place for is not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReasoningBudget {
    /// The marks around the reasoning. Each begins with one of the model's added tokens.
    pub marks: ReasoningMarks,
    /// The most tokens between them; 0: none.
    pub tokens: usize,
}
