//! Places of values in the text of a YAML file, for changes that leave the rest of the text as it is.
//!
//! It knows block and flow maps and lists, scalars over several lines, comments, quotes and anchors: what configurations are written in.
//! Lines end in `\n`. Whoever changes a text by it reads the result again and compares.

use std::ops::Range;

/// A value in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Bytes of the value, without its anchor; of a block, from its first key to the end of its last line.
    pub span: Range<usize>,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Scalars and aliases.
    Leaf,
    Map {
        entries: Vec<Entry>,
        /// Column of the keys of a block; `None` in a flow map.
        indent: Option<usize>,
    },
    List(Vec<Node>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    /// Bytes of key and value; in a block, whole lines, except that the first one may begin with the dash of a list.
    pub span: Range<usize>,
    pub value: Node,
}

/// Returns the outermost map of a text. `None` for text that is not understood.
pub(super) fn parse(text: &str) -> Option<Node> {
    let mut parser = Parser { text, at: 0 };
    parser.skip_lines();
    let node = parser.block(parser.column())?;
    parser.skip_lines();
    (parser.at >= text.len()).then_some(node)
}

/// Returns the comments in a part of a text, without those signs `#` that are within scalars.
pub(super) fn comments(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| comment_start(line).map(|at| line[at..].trim_end())).collect()
}

/// Returns where the comment of a line begins.
fn comment_start(line: &str) -> Option<usize> {
    let mut quote = None;
    let bytes = line.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            (None, b'#') if at == 0 || bytes[at - 1].is_ascii_whitespace() => return Some(at),
            (None, b'"' | b'\'') if at == 0 || b" \t[{,:".contains(&bytes[at - 1]) => quote = Some(byte),
            (Some(open), byte) if open == byte && (*byte == b'\'' || bytes[at - 1] != b'\\') => quote = None,
            _ => {}
        }
    }
    None
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn column(&self) -> usize {
        self.at - self.text[..self.at].rfind('\n').map_or(0, |at| at + 1)
    }

    /// Returns the end of the current line, and its beginning of a comment or end.
    fn line(&self) -> (usize, usize) {
        let end = self.rest().find('\n').map_or(self.text.len(), |at| self.at + at);
        let content = comment_start(&self.text[self.at..end]).map_or(end, |at| self.at + at);
        (end, content)
    }

    /// Goes to the first character of the next line with content, from the beginning of a line.
    fn skip_lines(&mut self) {
        while self.at < self.text.len() {
            let (end, content) = self.line();
            let line = &self.text[self.at..content];
            if !["", "---", "..."].contains(&line.trim()) {
                self.at += line.len() - line.trim_start().len();
                return;
            }
            self.at = (end + 1).min(self.text.len());
        }
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// Goes over blanks, line ends and comments within a flow collection.
    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'#' {
                self.at = self.line().0;
            } else if byte.is_ascii_whitespace() {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    /// Goes over an anchor.
    fn skip_anchor(&mut self) {
        if self.peek() == Some(b'&') {
            while self.peek().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                self.at += 1;
            }
            self.skip_spaces();
        }
    }

    /// Reads a block that begins here, in column `indent`; ends at the first line with content after it.
    fn block(&mut self, indent: usize) -> Option<Node> {
        let begin = self.at;
        let is_item = |parser: &Self| parser.rest().starts_with("- ");
        let (mut entries, mut items, mut end) = (Vec::new(), Vec::new(), begin);
        let of_items = is_item(self);
        while self.at < self.text.len() && self.column() == indent && is_item(self) == of_items {
            if of_items {
                self.at += 1;
                self.skip_spaces();
                let item = if self.key_length().is_some() { self.block(self.column())? } else { self.value(indent)? };
                end = item.span.end;
                items.push(item);
            } else {
                let entry = self.entry(indent)?;
                end = entry.span.end;
                entries.push(entry);
            }
        }
        let content = if of_items { Content::List(items) } else { Content::Map { entries, indent: Some(indent) } };
        (end > begin).then_some(Node { span: begin..end, content })
    }

    /// Reads a key with its value, and goes to the next line with content.
    fn entry(&mut self, indent: usize) -> Option<Entry> {
        let begin = self.at;
        let key = self.key()?;
        let value = self.value(indent)?;
        // Up to the end of the line of the value, with its comment.
        let rest = &self.text[value.span.end..];
        let end = match self.text[..value.span.end].ends_with('\n') {
            true => value.span.end,
            false => rest.find('\n').map_or(self.text.len(), |at| value.span.end + at + 1),
        };
        Some(Entry { key, span: begin..end, value })
    }

    /// Returns the length of a key that begins here, without its colon.
    fn key_length(&self) -> Option<usize> {
        let rest = self.rest();
        let length = match rest.as_bytes().first()? {
            quote @ (b'"' | b'\'') => rest[1..].find(char::from(*quote))? + 2,
            b'{' | b'[' => return None,
            _ => rest.find([':', '\n', '#', ',', '}', ']'])?,
        };
        let after = &rest.as_bytes()[length..];
        (after.first() == Some(&b':') && after.get(1).is_none_or(|byte| byte.is_ascii_whitespace())).then_some(length)
    }

    /// Reads a key, and goes to its value.
    fn key(&mut self) -> Option<String> {
        let length = self.key_length()?;
        let key = self.rest()[..length].trim_matches(['"', '\'']).to_owned();
        self.at += length + 1;
        self.skip_spaces();
        Some(key)
    }

    /// Reads the value of a key or item of a block in column `indent`, and goes to the next line with content.
    fn value(&mut self, indent: usize) -> Option<Node> {
        self.skip_anchor();
        let (end, content) = self.line();
        let begin = self.at;
        let line = self.text[begin..content].trim_end();
        match line.as_bytes().first() {
            None => {
                self.at = (end + 1).min(self.text.len());
                self.skip_lines();
                let deeper = self.column() > indent || (self.column() == indent && self.rest().starts_with("- "));
                if deeper && self.at < self.text.len() {
                    return self.block(self.column());
                }
                Some(Node { span: begin..begin, content: Content::Leaf })
            }
            Some(b'{' | b'[') => {
                let node = self.flow()?;
                self.next_line()?;
                Some(node)
            }
            Some(_) => {
                let mut end = begin + line.len();
                self.at = end;
                self.next_line()?;
                // A scalar goes on as long as its lines are deeper.
                while self.at < self.text.len() && self.column() > indent {
                    end = self.line().0;
                    self.at = (end + 1).min(self.text.len());
                    self.skip_lines();
                }
                Some(Node { span: begin..end, content: Content::Leaf })
            }
        }
    }

    /// Goes to the next line with content, if nothing but a comment is left in this one.
    fn next_line(&mut self) -> Option<()> {
        let (end, content) = self.line();
        if !self.text[self.at..content].trim().is_empty() {
            return None;
        }
        self.at = (end + 1).min(self.text.len());
        self.skip_lines();
        Some(())
    }

    /// Reads a value within a flow collection.
    fn flow(&mut self) -> Option<Node> {
        self.skip_anchor();
        let begin = self.at;
        match self.peek()? {
            b'{' => {
                let mut entries = Vec::new();
                self.at += 1;
                while self.more(b'}')? {
                    let begin = self.at;
                    let key = self.key()?;
                    self.skip_blanks();
                    let value = self.flow()?;
                    entries.push(Entry { key, span: begin..value.span.end, value });
                }
                Some(Node { span: begin..self.at, content: Content::Map { entries, indent: None } })
            }
            b'[' => {
                let mut items = Vec::new();
                self.at += 1;
                while self.more(b']')? {
                    items.push(self.flow()?);
                }
                Some(Node { span: begin..self.at, content: Content::List(items) })
            }
            quote @ (b'"' | b'\'') => {
                self.at += self.rest()[1..].find(char::from(quote))? + 2;
                Some(Node { span: begin..self.at, content: Content::Leaf })
            }
            _ => {
                let length = self.rest().find([',', '}', ']', '\n', '#'])?;
                let length = self.rest()[..length].trim_end().len();
                self.at += length;
                Some(Node { span: begin..self.at, content: Content::Leaf })
            }
        }
    }

    /// Goes to the next element of a flow collection, or over its closing bracket.
    fn more(&mut self, close: u8) -> Option<bool> {
        self.skip_blanks();
        if self.peek()? == b',' {
            self.at += 1;
            self.skip_blanks();
        }
        if self.peek()? == close {
            self.at += 1;
            return Some(false);
        }
        Some(true)
    }
}
