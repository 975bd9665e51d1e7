//! Bounds on what a template may use, put into its compiled instructions.
//!
//! The engine counts steps (`fuel`), but a string that doubles in each of 40
//! steps is a terabyte. So every instruction that can make a large value is
//! replaced by, or followed by, a filter of ours that counts bytes: `+`, `~`,
//! `*`, `%`, slices, literals, calls, filters and raw text. It is also where these
//! operators get Python's semantics.

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};
use std::collections::BTreeMap;

/// Instructions that one render may execute.
pub(super) const MAX_STEPS: u64 = 4_000_000;
/// The longest string that a render may make or return, in bytes.
pub(super) const MAX_STRING: usize = 8 << 20;
/// Bytes of all strings and lists made in one render, intermediate ones included.
const MAX_BYTES: usize = 128 << 20;
/// Elements that may be counted in one render; bounds the time of the counting.
const MAX_ELEMENTS: usize = 4_000_000;
/// Nesting of a value. Deeper ones would be dropped by recursion.
pub(crate) const MAX_DEPTH: usize = 128;
/// Tokens between `{{` and `}}`; published templates stay below 200.
const MAX_TAG_TOKENS: usize = 2000;
const MAX_ELIFS: usize = 400;
/// The cost of one element of a list or map, in bytes.
const ELEMENT_BYTES: usize = 32;

// Names that no template can write, as they are not identifiers.
pub(super) const ADD: &str = "+";
pub(super) const CONCAT: &str = "~";
pub(super) const MUL: &str = "*";
pub(super) const MOD: &str = "%";
pub(super) const SLICE: &str = "[:]";
pub(super) const ITERATE: &str = "for";
pub(super) const CHARGE: &str = "$";
pub(super) const CHARGE_NESTED: &str = "$[]";

/// "Look the filter up by its name": the engine's value for no cache slot.
const NO_LOCAL: u8 = !0;

pub(super) type Blocks<'s> = BTreeMap<&'s str, Instructions<'s>>;

/// Compiles `source` to metered instructions.
pub(super) fn compile(
    source: &str,
    syntax: SyntaxConfig,
) -> Result<(Instructions<'_>, Blocks<'_>), Error> {
    check_length(source, syntax.clone())?;
    let ast = parse(source, "chat_template", syntax)?;
    let mut generator = CodeGenerator::new("chat_template", source);
    generator.compile_stmt(&ast);
    let (main, blocks) = generator.finish();
    Ok((
        metered(&main, source),
        blocks.into_iter().map(|(name, code)| (name, metered(&code, source))).collect(),
    ))
}

/// The parser bounds nesting, but goes through chains (`a + a + …`, `elif …`) by recursion as well.
fn check_length(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    let (mut tokens, mut elifs) = (0, 0);
    for token in tokenize(source, false, syntax) {
        match token?.0 {
            Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => tokens += 1,
        }
        if tokens > MAX_TAG_TOKENS || elifs > MAX_ELIFS {
            let limits = format!("{MAX_TAG_TOKENS} tokens in one tag or {MAX_ELIFS} `elif`s");
            return Err(exceeded(&format!("the template has more than {limits}")));
        }
    }
    Ok(())
}

fn metered<'s>(code: &Instructions<'s>, source: &'s str) -> Instructions<'s> {
    // Where each old instruction begins in the new list.
    let mut starts = Vec::new();
    let mut replaced: Vec<(Vec<Instruction<'s>>, u16)> = Vec::new();
    let mut next = 0u32;
    let mut index = 0;
    while let Some(instruction) = code.get(index) {
        let line = code.get_line(index).map_or(0, |line| u16::try_from(line).unwrap_or(u16::MAX));
        let instructions = replacement(instruction);
        starts.push(next);
        next += instructions.len() as u32;
        replaced.push((instructions, line));
        index += 1;
    }
    starts.push(next);
    let target = |old: u32| starts.get(old as usize).copied().unwrap_or(next);
    let mut out = Instructions::new("chat_template", source);
    for (instructions, line) in replaced {
        for instruction in instructions {
            let moved = match instruction {
                Instruction::Iterate(to) => Instruction::Iterate(target(to)),
                Instruction::Jump(to) => Instruction::Jump(target(to)),
                Instruction::JumpIfFalse(to) => Instruction::JumpIfFalse(target(to)),
                Instruction::JumpIfFalseOrPop(to) => Instruction::JumpIfFalseOrPop(target(to)),
                Instruction::JumpIfTrueOrPop(to) => Instruction::JumpIfTrueOrPop(target(to)),
                Instruction::BuildMacro(name, to, flags) => {
                    Instruction::BuildMacro(name, target(to), flags)
                }
                other => other,
            };
            out.add_with_line(moved, line);
        }
    }
    out
}

fn replacement<'s>(instruction: &Instruction<'s>) -> Vec<Instruction<'s>> {
    let filter = |name, args| Instruction::ApplyFilter(name, Some(args), NO_LOCAL);
    match instruction {
        Instruction::Add => vec![filter(ADD, 2)],
        Instruction::StringConcat => vec![filter(CONCAT, 2)],
        Instruction::Mul => vec![filter(MUL, 2)],
        Instruction::Rem => vec![filter(MOD, 2)],
        Instruction::Slice => vec![filter(SLICE, 4)],
        Instruction::PushLoop(_) => vec![filter(ITERATE, 1), instruction.clone()],
        // Through the formatter, which counts what is printed.
        Instruction::EmitRaw(raw) => {
            vec![Instruction::LoadConst(Value::from(*raw)), Instruction::Emit]
        }
        // These make values of values, one level deeper each time.
        Instruction::BuildList(_)
        | Instruction::BuildTuple(_)
        | Instruction::BuildMap(_)
        | Instruction::ApplyFilter("groupby", ..)
        | Instruction::CallFunction(..)
        | Instruction::CallObject(_) => vec![instruction.clone(), filter(CHARGE_NESTED, 1)],
        Instruction::ApplyFilter(..) | Instruction::CallMethod(..) => {
            vec![instruction.clone(), filter(CHARGE, 1)]
        }
        other => vec![other.clone()],
    }
}

/// The amounts that one render has used so far.
#[derive(Default)]
struct Used {
    bytes: usize,
    elements: usize,
}

/// Marks the errors of this module, so that they are told from the template's own.
pub(super) fn exceeded(what: &str) -> Error {
    Error::new(ErrorKind::OutOfFuel, what.to_owned())
}

/// Counts `bytes` that a string is about to take.
pub(super) fn charge_bytes(state: &mut State, bytes: usize) -> Result<(), Error> {
    if bytes > MAX_STRING {
        return Err(exceeded(&format!(
            "a string of {bytes} bytes, at most {MAX_STRING} are allowed"
        )));
    }
    let used = state.get_or_insert_extension(Used::default());
    used.bytes = used.bytes.saturating_add(bytes);
    if used.bytes > MAX_BYTES {
        return Err(exceeded(&format!("more than {MAX_BYTES} bytes of strings and lists")));
    }
    Ok(())
}

/// Counts a list of `len` elements that is about to be made.
pub(super) fn charge_list(state: &mut State, len: usize) -> Result<(), Error> {
    charge_bytes(state, len.saturating_mul(ELEMENT_BYTES))
}

/// The filter behind filters and methods: counts the value and passes it on.
pub(super) fn charge(state: &mut State, value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => charge_bytes(state, value.as_str().map_or(0, str::len))?,
        ValueKind::Seq | ValueKind::Map => charge_list(state, value.len().unwrap_or(0))?,
        _ => {}
    }
    Ok(value)
}

/// The filter behind literals and calls: looks at what the value holds as well.
pub(super) fn charge_nested(state: &mut State, value: Value) -> Result<Value, Error> {
    let value = charge(state, value)?;
    let used = state.get_or_insert_extension(Used::default());
    let mut left = MAX_ELEMENTS.saturating_sub(used.elements);
    count(&value, MAX_DEPTH, &mut left)?;
    used.elements = MAX_ELEMENTS - left;
    Ok(value)
}

/// Walks the value as printing it would; a list that holds itself twice in each level is caught
/// here.
fn count(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    let kind = value.kind();
    if !matches!(kind, ValueKind::Seq | ValueKind::Map) {
        return Ok(());
    }
    if depth == 0 {
        return Err(exceeded(&format!("a value nested more than {MAX_DEPTH} levels deep")));
    }
    for item in value.try_iter()? {
        *left = left.checked_sub(1).ok_or_else(|| exceeded("values with too many elements"))?;
        let item = if kind == ValueKind::Map { value.get_item(&item)? } else { item };
        count(&item, depth - 1, left)?;
    }
    Ok(())
}
