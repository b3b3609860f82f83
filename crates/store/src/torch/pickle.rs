//! The description of tensors in a file of torch: a pickle, of which only what describes tensors is understood. Nothing
//! in it is run.

use std::collections::HashMap;

/// Place of a tensor: its storage, and where in it the elements lie.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// Name of the storage's type, such as `FloatStorage`.
    pub kind: String,
    /// Name of the storage in the archive.
    pub key: String,
    /// Index of the first element.
    pub offset: usize,
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Distance of neighbours along each axis, in elements.
    pub strides: Vec<usize>,
}

/// Values refer to each other by index, so that neither nesting nor the memo can take stack or memory.
#[derive(Clone, Debug)]
enum Value {
    Mark,
    Other,
    Int(i64),
    Text(String),
    Global(String),
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    Storage(String, String),
    Tensor(Stored),
}

#[derive(Default)]
struct Machine {
    values: Vec<Value>,
    stack: Vec<usize>,
    memo: HashMap<usize, usize>,
}

/// What a file of torch holds, by name.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub tensors: HashMap<String, Stored>,
    /// Whole numbers, such as the dimensions of a model.
    pub numbers: HashMap<String, i64>,
}

/// Returns what a pickle describes: a dictionary, and the dictionaries that are its values.
pub(crate) fn read(bytes: &[u8]) -> Result<Content, String> {
    let mut machine = Machine::default();
    let root = machine.run(&mut Input(bytes))?;
    let Value::Dict(items) = &machine.values[root] else { return Err("it holds no dictionary of tensors".into()) };
    let mut content = Content::default();
    for (key, value) in items {
        let Value::Text(name) = &machine.values[*key] else { continue };
        match &machine.values[*value] {
            // No deeper: a dictionary can hold itself.
            Value::Dict(inner) => {
                for (key, value) in inner {
                    let Value::Text(key) = &machine.values[*key] else { continue };
                    content.add(format!("{name}.{key}"), &machine.values[*value]);
                }
            }
            value => content.add(name.clone(), value),
        }
    }
    Ok(content)
}

impl Content {
    fn add(&mut self, name: String, value: &Value) {
        match value {
            Value::Tensor(stored) => drop(self.tensors.insert(name, stored.clone())),
            Value::Int(number) => drop(self.numbers.insert(name, *number)),
            _ => {}
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("its description ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    /// A little-endian number of up to 8 bytes.
    fn number(&mut self, count: usize) -> Result<usize, String> {
        let taken = self.take(count)?;
        let number = taken.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        usize::try_from(number).map_err(|e| e.to_string())
    }

    fn text(&mut self, count: usize) -> Result<String, String> {
        String::from_utf8(self.take(count)?.to_vec()).map_err(|e| e.to_string())
    }

    fn line(&mut self) -> Result<String, String> {
        let end = self.0.iter().position(|byte| *byte == b'\n').ok_or("its description ends early")?;
        let line = self.text(end)?;
        self.take(1)?;
        Ok(line)
    }
}

/// Opcodes of the stack machine by their names in Python's `pickletools`: those that `torch.save` writes. Any other is refused.
mod opcode {
    pub const MARK: u8 = b'(';
    pub const STOP: u8 = b'.';
    pub const EMPTY_TUPLE: u8 = b')';
    pub const EMPTY_LIST: u8 = b']';
    pub const EMPTY_DICT: u8 = b'}';
    pub const NONE: u8 = b'N';
    pub const NEWTRUE: u8 = 0x88;
    pub const NEWFALSE: u8 = 0x89;
    pub const BININT1: u8 = b'K';
    pub const BININT2: u8 = b'M';
    pub const BININT: u8 = b'J';
    pub const LONG1: u8 = 0x8a;
    pub const BINFLOAT: u8 = b'G';
    pub const BINUNICODE: u8 = b'X';
    pub const SHORT_BINUNICODE: u8 = 0x8c;
    pub const GLOBAL: u8 = b'c';
    pub const BINPUT: u8 = b'q';
    pub const LONG_BINPUT: u8 = b'r';
    pub const MEMOIZE: u8 = 0x94;
    pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';
    pub const TUPLE: u8 = b't';
    pub const TUPLE1: u8 = 0x85;
    pub const TUPLE3: u8 = 0x87;
    pub const APPEND: u8 = b'a';
    pub const APPENDS: u8 = b'e';
    pub const SETITEM: u8 = b's';
    pub const SETITEMS: u8 = b'u';
    pub const BUILD: u8 = b'b';
    pub const BINPERSID: u8 = b'Q';
    pub const REDUCE: u8 = b'R';
    pub const PROTO: u8 = 0x80;
    pub const FRAME: u8 = 0x95;
}

impl Machine {
    fn run(&mut self, input: &mut Input) -> Result<usize, String> {
        use opcode::*;
        loop {
            let code = input.take(1)?[0];
            match code {
                STOP => return self.pop(),
                PROTO => drop(input.take(1)?),
                FRAME => drop(input.take(8)?),
                MARK => self.push(Value::Mark),
                EMPTY_DICT => self.push(Value::Dict(Vec::new())),
                EMPTY_LIST | EMPTY_TUPLE => self.push(Value::List(Vec::new())),
                NONE | NEWTRUE | NEWFALSE => self.push(Value::Other),
                BINFLOAT => {
                    input.take(8)?;
                    self.push(Value::Other)
                }
                BININT1 | BININT2 => {
                    let n = input.number(if code == BININT1 { 1 } else { 2 })?;
                    self.push(Value::Int(n as i64))
                }
                BININT => {
                    let n = input.number(4)?;
                    self.push(Value::Int(i64::from(n as u32 as i32)))
                }
                LONG1 => {
                    let count = input.number(1)?;
                    if count > 8 {
                        return Err("a number in its description is too large".into());
                    }
                    let n = input.number(count)?;
                    self.push(Value::Int(n as i64))
                }
                BINUNICODE | SHORT_BINUNICODE => {
                    let length = input.number(if code == BINUNICODE { 4 } else { 1 })?;
                    let text = input.text(length)?;
                    self.push(Value::Text(text))
                }
                GLOBAL => {
                    let name = format!("{}.{}", input.line()?, input.line()?);
                    self.global(name)?
                }
                BINPUT | LONG_BINPUT | MEMOIZE => {
                    let slot = match code {
                        BINPUT => input.number(1)?,
                        LONG_BINPUT => input.number(4)?,
                        _ => self.memo.len(),
                    };
                    self.keep(slot)?
                }
                BINGET | LONG_BINGET => {
                    let slot = input.number(if code == BINGET { 1 } else { 4 })?;
                    self.recall(slot)?
                }
                TUPLE => {
                    let items = self.marked()?;
                    self.push(Value::List(items))
                }
                TUPLE1..=TUPLE3 => {
                    let count = usize::from(code - TUPLE1) + 1;
                    let at = self.stack.len().checked_sub(count).ok_or("its stack is empty")?;
                    let items = self.stack.split_off(at);
                    self.push(Value::List(items))
                }
                APPEND => {
                    let item = self.pop()?;
                    self.extend(vec![item])?
                }
                APPENDS => {
                    let items = self.marked()?;
                    self.extend(items)?
                }
                SETITEM => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(vec![key, value])?
                }
                SETITEMS => {
                    let items = self.marked()?;
                    self.set(items)?
                }
                // An attribute of a dictionary, such as `_metadata`.
                BUILD => drop(self.pop()?),
                BINPERSID => self.storage()?,
                REDUCE => self.reduce()?,
                other => {
                    return Err(format!("its description has the opcode 0x{other:02x}, which describes no tensors"));
                }
            }
        }
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<usize, String> {
        self.stack.pop().ok_or_else(|| "its stack is empty".into())
    }

    fn top(&self) -> Result<usize, String> {
        self.stack.last().copied().ok_or_else(|| "its stack is empty".into())
    }

    fn keep(&mut self, slot: usize) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, slot: usize) -> Result<(), String> {
        let value = *self.memo.get(&slot).ok_or("it refers to what it does not hold")?;
        self.stack.push(value);
        Ok(())
    }

    fn marked(&mut self) -> Result<Vec<usize>, String> {
        let mark = self.stack.iter().rposition(|at| matches!(self.values[*at], Value::Mark));
        let items = self.stack.split_off(mark.ok_or("a mark is missing")? + 1);
        self.stack.pop();
        Ok(items)
    }

    fn extend(&mut self, items: Vec<usize>) -> Result<(), String> {
        let top = self.top()?;
        let Value::List(list) = &mut self.values[top] else { return Err("it appends to no list".into()) };
        list.extend(items);
        Ok(())
    }

    fn set(&mut self, items: Vec<usize>) -> Result<(), String> {
        let top = self.top()?;
        let Value::Dict(dict) = &mut self.values[top] else { return Err("it sets an item of no dictionary".into()) };
        dict.extend(items.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }

    fn global(&mut self, name: String) -> Result<(), String> {
        let storage = name.strip_prefix("torch.").is_some_and(|n| n.ends_with("Storage") && !n.contains('.'));
        let known = ["collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"];
        if !storage && !known.contains(&name.as_str()) {
            return Err(format!("it names `{name}`, which is code and not a tensor"));
        }
        self.push(Value::Global(name));
        Ok(())
    }

    fn list(&self, at: usize) -> Result<&[usize], String> {
        match &self.values[at] {
            Value::List(items) => Ok(items),
            _ => Err("a list is missing".into()),
        }
    }

    fn storage(&mut self) -> Result<(), String> {
        let at = self.pop()?;
        let [_, kind, key, ..] = self.list(at)? else { return Err("a storage is malformed".into()) };
        let (Value::Global(kind), Value::Text(key)) = (&self.values[*kind], &self.values[*key]) else {
            return Err("a storage is malformed".into());
        };
        // Each tensor holds a copy of the key.
        if key.len() > 64 {
            return Err("the name of a storage is too long".into());
        }
        let value = Value::Storage(kind.trim_start_matches("torch.").into(), key.clone());
        self.push(value);
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), String> {
        let (args, function) = (self.pop()?, self.pop()?);
        let Value::Global(name) = &self.values[function] else {
            return Err("it calls something that is not a function".into());
        };
        let args = self.list(args)?;
        let value = match (name.as_str(), args) {
            ("collections.OrderedDict", []) => Value::Dict(Vec::new()),
            ("torch._utils._rebuild_parameter", [tensor, ..]) if matches!(self.values[*tensor], Value::Tensor(_)) => {
                self.values[*tensor].clone()
            }
            ("torch._utils._rebuild_tensor_v2", [storage, offset, shape, strides, ..]) => {
                let Value::Storage(kind, key) = &self.values[*storage] else {
                    return Err("a tensor has no storage".into());
                };
                let (kind, key, offset) = (kind.clone(), key.clone(), self.size(*offset)?);
                Value::Tensor(Stored { kind, key, offset, shape: self.sizes(*shape)?, strides: self.sizes(*strides)? })
            }
            _ => return Err(format!("it calls `{name}` in a way that describes no tensor")),
        };
        self.push(value);
        Ok(())
    }

    fn size(&self, at: usize) -> Result<usize, String> {
        let Value::Int(n) = self.values[at] else { return Err("a size is not a number".into()) };
        usize::try_from(n).map_err(|_| "a size is negative".into())
    }

    fn sizes(&self, at: usize) -> Result<Vec<usize>, String> {
        let items = self.list(at)?;
        if items.len() > 8 {
            return Err("a tensor has more than 8 axes".into());
        }
        items.iter().map(|at| self.size(*at)).collect()
    }
}
