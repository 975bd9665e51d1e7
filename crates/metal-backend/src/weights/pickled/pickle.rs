//! Pickles of tensors' names, read by a machine that calls nothing.
//!
//! A pickle is a program. Of its language only what `torch.save` writes for a dictionary of tensors
//! is known here, and a function that it names is a fact about a tensor, or refused by its name.

use std::collections::HashMap;
use std::rc::Rc;

/// Steps of one pickle, at most; a tensor takes some fifty.
const MAX_STEPS: usize = 1 << 22;
/// Tuples within tuples, at most.
const MAX_DEPTH: usize = 16;
/// Dimensions of a tensor, at most.
const MAX_DIMENSIONS: usize = 16;

/// A tensor as the pickle describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    pub storage: Storage,
    /// Elements of the storage before its first one.
    pub offset: u64,
    pub shape: Vec<u64>,
    /// Elements from one to the next, for each dimension.
    pub strides: Vec<u64>,
}

/// Numbers of one type that tensors share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub kind: Kind,
    /// The name of its entry in the file.
    pub key: String,
    pub elements: u64,
}

/// The type of a storage's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

impl Kind {
    pub fn size(self) -> u64 {
        match self {
            Kind::F64 | Kind::I64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::F16 | Kind::Bf16 | Kind::I16 => 2,
            Kind::I8 | Kind::U8 | Kind::Bool => 1,
        }
    }
}

/// A name that a pickle may use, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(Kind),
}

impl Known {
    fn of(module: &str, name: &str) -> Option<Known> {
        Some(match (module, name) {
            ("collections", "OrderedDict") => Known::OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2") => Known::RebuildTensor,
            ("torch._utils", "_rebuild_parameter") => Known::RebuildParameter,
            ("torch", name) => Known::Storage(match name.strip_suffix("Storage")? {
                "Double" => Kind::F64,
                "Float" => Kind::F32,
                "Half" => Kind::F16,
                "BFloat16" => Kind::Bf16,
                "Long" => Kind::I64,
                "Int" => Kind::I32,
                "Short" => Kind::I16,
                "Char" => Kind::I8,
                "Byte" => Kind::U8,
                "Bool" => Kind::Bool,
                _ => return None,
            }),
            _ => return None,
        })
    }
}

/// A value on the machine's stack. Dictionaries and lists lie beside it, so that one within itself
/// is a number, not a circle.
#[derive(Clone, Debug)]
enum Value<'a> {
    Mark,
    /// Nothing, a truth or a float, of which nothing is asked.
    Plain,
    Int(i64),
    Text(&'a str),
    Tuple {
        items: Rc<[Value<'a>]>,
        depth: usize,
    },
    List,
    Dict(usize),
    Known(Known),
    Storage(Rc<Storage>),
    Tensor(Rc<Tensor>),
}

impl Value<'_> {
    fn name(&self) -> &'static str {
        match self {
            Value::Mark => "a mark",
            Value::Plain => "a constant",
            Value::Int(_) => "a number",
            Value::Text(_) => "a text",
            Value::Tuple { .. } => "a tuple",
            Value::List => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Known(_) => "a function or type",
            Value::Storage(_) => "a storage",
            Value::Tensor(_) => "a tensor",
        }
    }
}

/// The tensors of the dictionary in a pickle, by their names.
///
/// # Errors
/// An instruction or a name that is not known; a program that `torch.save` would not write; a value
/// of the dictionary that is no tensor.
pub(super) fn tensors(pickle: &[u8]) -> Result<Vec<(String, Rc<Tensor>)>, String> {
    let mut machine = Machine {
        rest: pickle,
        length: pickle.len(),
        stack: Vec::new(),
        memo: HashMap::new(),
        dicts: Vec::new(),
    };
    let dict = machine.run()?;
    let mut tensors = Vec::new();
    for (key, value) in std::mem::take(&mut machine.dicts[dict]) {
        let Value::Text(name) = key else {
            return Err(format!("{} is the name of {}", key.name(), value.name()));
        };
        match value {
            Value::Tensor(tensor) => tensors.push((name.to_owned(), tensor)),
            other => return Err(format!("`{name}` is {}, not a tensor", other.name())),
        }
    }
    Ok(tensors)
}

struct Machine<'a> {
    rest: &'a [u8],
    length: usize,
    stack: Vec<Value<'a>>,
    memo: HashMap<u32, Value<'a>>,
    dicts: Vec<Vec<(Value<'a>, Value<'a>)>>,
}

impl<'a> Machine<'a> {
    /// Runs to the end; which dictionary it leaves.
    fn run(&mut self) -> Result<usize, String> {
        for _ in 0..MAX_STEPS {
            let at = self.length - self.rest.len();
            let fault = |why: String| format!("byte {at}: {why}");
            let [code] = self.take::<1>().map_err(fault)?;
            if code == b'.' {
                return match (self.stack.pop(), self.stack.is_empty()) {
                    (Some(Value::Dict(dict)), true) => Ok(dict),
                    (Some(other), true) => {
                        Err(format!("it holds {}, not a dictionary", other.name()))
                    }
                    (Some(_), false) => Err("it ends with values left over".into()),
                    (None, _) => Err("it ends without a value".into()),
                };
            }
            self.step(code).map_err(fault)?;
        }
        Err(format!("it takes more than {MAX_STEPS} steps"))
    }

    fn step(&mut self, code: u8) -> Result<(), String> {
        match code {
            // PROTO
            0x80 => match self.take::<1>()? {
                [2] => {}
                [version] => return Err(format!("protocol {version}, where torch writes 2")),
            },
            // GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                let known = Known::of(module, name);
                let known = known.ok_or_else(|| {
                    format!("the global `{module}.{name}` is none of a dictionary of tensors")
                })?;
                self.stack.push(Value::Known(known));
            }
            // BINPUT, LONG_BINPUT
            b'q' | b'r' => {
                let at = self.index(code == b'q')?;
                let top = self.stack.last().ok_or("it remembers a value, and there is none")?;
                self.memo.insert(at, top.clone());
            }
            // BINGET, LONG_BINGET
            b'h' | b'j' => {
                let at = self.index(code == b'h')?;
                let value = self.memo.get(&at).ok_or_else(|| format!("value {at} was not kept"))?;
                self.stack.push(value.clone());
            }
            b'(' => self.stack.push(Value::Mark),
            // NONE, NEWTRUE, NEWFALSE
            b'N' | 0x88 | 0x89 => self.stack.push(Value::Plain),
            // BINFLOAT
            b'G' => {
                self.take::<8>()?;
                self.stack.push(Value::Plain);
            }
            // BININT, BININT1, BININT2, LONG1
            b'J' => {
                let bytes = self.take()?;
                self.stack.push(Value::Int(i32::from_le_bytes(bytes).into()));
            }
            b'K' => {
                let [byte] = self.take()?;
                self.stack.push(Value::Int(byte.into()));
            }
            b'M' => {
                let bytes = self.take()?;
                self.stack.push(Value::Int(u16::from_le_bytes(bytes).into()));
            }
            0x8a => {
                let [length] = self.take()?;
                let bytes = self.bytes(length.into())?;
                if bytes.len() > 8 {
                    return Err(format!("a number of {length} bytes, at most 8 are read"));
                }
                let negative = bytes.last().is_some_and(|last| *last >= 0x80);
                let mut whole = [if negative { 0xff } else { 0 }; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                self.stack.push(Value::Int(i64::from_le_bytes(whole)));
            }
            // BINUNICODE
            b'X' => {
                let length = u32::from_le_bytes(self.take()?);
                let text = str::from_utf8(self.bytes(length.into())?);
                self.stack.push(Value::Text(text.map_err(|_| "a text that is not UTF-8")?));
            }
            // EMPTY_TUPLE, TUPLE1, TUPLE2, TUPLE3, TUPLE
            b')' => self.tuple(0)?,
            0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
            b't' => {
                let items = self.marked()?;
                self.push_tuple(items)?;
            }
            b']' => self.stack.push(Value::List),
            b'}' => self.push_dict(),
            // APPEND, APPENDS: lists are not looked into.
            b'a' => {
                self.pop()?;
                self.expect_list()?;
            }
            b'e' => {
                self.marked()?;
                self.expect_list()?;
            }
            // SETITEM, SETITEMS
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                let dict = self.dict()?;
                self.dicts[dict].push((key, value));
            }
            b'u' => {
                let items = self.marked()?;
                if items.len() % 2 != 0 {
                    return Err("a name without a value".into());
                }
                let dict = self.dict()?;
                let mut items = items.into_iter();
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    self.dicts[dict].push((key, value));
                }
            }
            // BINPERSID
            b'Q' => {
                let storage = storage(&self.pop()?)?;
                self.stack.push(Value::Storage(Rc::new(storage)));
            }
            // REDUCE
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.call(&function, &arguments)?;
            }
            // BUILD: what a dictionary knows beside its items, which is left aside.
            b'b' => {
                self.pop()?;
                self.dict()?;
            }
            code => {
                let shown = char::from(code).escape_default();
                return Err(format!("the instruction 0x{code:02x} (`{shown}`), which is not read"));
            }
        }
        Ok(())
    }

    fn bytes(&mut self, count: u64) -> Result<&'a [u8], String> {
        let taken = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = taken.ok_or_else(|| {
            format!("it asks for {count} bytes, and {} are left", self.rest.len())
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.bytes(N as u64)?;
        Ok(bytes.try_into().expect("so many were asked for"))
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let end =
            self.rest.iter().position(|byte| *byte == b'\n').ok_or("a name without an end")?;
        let line = self.bytes(end as u64 + 1)?;
        str::from_utf8(&line[..end]).map_err(|_| "a name that is not UTF-8".into())
    }

    fn index(&mut self, is_short: bool) -> Result<u32, String> {
        match is_short {
            true => Ok(u32::from(self.take::<1>()?[0])),
            false => Ok(u32::from_le_bytes(self.take()?)),
        }
    }

    fn pop(&mut self) -> Result<Value<'a>, String> {
        match self.stack.pop() {
            None | Some(Value::Mark) => Err("it takes a value, and there is none".into()),
            Some(value) => Ok(value),
        }
    }

    /// The values behind the last mark.
    fn marked(&mut self) -> Result<Vec<Value<'a>>, String> {
        let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark));
        let mark = mark.ok_or("it takes values up to a mark, and there is none")?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let mut items = (0..count).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        self.push_tuple(items)
    }

    fn push_tuple(&mut self, items: Vec<Value<'a>>) -> Result<(), String> {
        let depth = |item: &Value<'_>| match item {
            Value::Tuple { depth, .. } => *depth,
            _ => 0,
        };
        let depth = 1 + items.iter().map(depth).max().unwrap_or_default();
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} tuples within each other"));
        }
        self.stack.push(Value::Tuple { items: items.into(), depth });
        Ok(())
    }

    fn push_dict(&mut self) {
        self.stack.push(Value::Dict(self.dicts.len()));
        self.dicts.push(Vec::new());
    }

    /// The dictionary on the top of the stack, which stays there.
    fn dict(&self) -> Result<usize, String> {
        match self.stack.last() {
            Some(Value::Dict(dict)) => Ok(*dict),
            Some(other) => Err(format!("it changes {}, not a dictionary", other.name())),
            None => Err("it changes a dictionary, and there is none".into()),
        }
    }

    fn expect_list(&self) -> Result<(), String> {
        match self.stack.last() {
            Some(Value::List) => Ok(()),
            _ => Err("it adds to a list, and there is none".into()),
        }
    }

    /// Puts what a function would return on the stack.
    fn call(&mut self, function: &Value<'a>, arguments: &Value<'a>) -> Result<(), String> {
        let Value::Tuple { items, .. } = arguments else {
            return Err(format!("it calls with {}, not a tuple", arguments.name()));
        };
        let made = match (function, &items[..]) {
            (Value::Known(Known::OrderedDict), []) => {
                self.push_dict();
                return Ok(());
            }
            (
                Value::Known(Known::RebuildTensor),
                [Value::Storage(storage), Value::Int(offset), shape, strides, ..],
            ) => {
                let tensor = Tensor {
                    storage: (**storage).clone(),
                    offset: u64::try_from(*offset).map_err(|_| format!("the offset {offset}"))?,
                    shape: sizes(shape)?,
                    strides: sizes(strides)?,
                };
                Value::Tensor(Rc::new(tensor))
            }
            (Value::Known(Known::RebuildParameter), [tensor @ Value::Tensor(_), ..]) => {
                tensor.clone()
            }
            (Value::Known(known), _) => {
                return Err(format!("a call of {known:?} with other arguments than torch's"));
            }
            (other, _) => return Err(format!("a call of {}", other.name())),
        };
        self.stack.push(made);
        Ok(())
    }
}

/// The storage that a persistent id names.
fn storage(id: &Value<'_>) -> Result<Storage, String> {
    let other = || "a persistent id that is none of a storage".to_owned();
    let Value::Tuple { items, .. } = id else { return Err(other()) };
    let [
        Value::Text("storage"),
        Value::Known(Known::Storage(kind)),
        Value::Text(key),
        Value::Text(_),
        Value::Int(elements),
    ] = &items[..]
    else {
        return Err(other());
    };
    let elements =
        u64::try_from(*elements).map_err(|_| format!("a storage of {elements} numbers"))?;
    Ok(Storage { kind: *kind, key: (*key).to_owned(), elements })
}

/// Sizes or strides, none of them negative.
fn sizes(tuple: &Value<'_>) -> Result<Vec<u64>, String> {
    let Value::Tuple { items, .. } = tuple else {
        return Err(format!("sizes of a tensor that are {}", tuple.name()));
    };
    if items.len() > MAX_DIMENSIONS {
        return Err(format!("a tensor of {} dimensions", items.len()));
    }
    let size = |item: &Value<'_>| match item {
        Value::Int(size) => u64::try_from(*size).map_err(|_| format!("the size or stride {size}")),
        other => Err(format!("a size of a tensor that is {}", other.name())),
    };
    items.iter().map(size).collect()
}
